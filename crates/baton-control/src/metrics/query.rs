//! What a scrape asks for, as the query of its URL says it.

use super::parts::Part;

/// What a scrape asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScrapeQuery {
    /// The parts, each once.
    parts: Vec<Part>,
    /// Servers in maintenance are left out.
    pub no_maintenance: bool,
}

/// The query is not one: it is responded with 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InvalidQuery;

impl ScrapeQuery {
    /// Reads what stands behind the `?`.
    ///
    /// `scope` names a part; several are added up, `*` stands for all, and an empty one takes those before it away. `no-maint` leaves
    /// servers in maintenance out. Other parameters are ignored.
    ///
    /// # Errors
    /// An unknown part, a scope without a value, or an escape that is none.
    pub fn parse(query: &[u8]) -> Result<ScrapeQuery, InvalidQuery> {
        let mut scopes: Option<Vec<Part>> = None;
        let mut no_maintenance = false;
        // What stands behind a `#` is not sent by clients that know what it means.
        let query = query.split(|byte| *byte == b'#').next().unwrap_or_default();
        for parameter in query.split(|byte| *byte == b'&') {
            let (name, value) = match parameter.iter().position(|byte| *byte == b'=') {
                Some(at) => (&parameter[..at], Some(&parameter[at + 1..])),
                None => (parameter, None),
            };
            let name = unescaped(name)?;
            let value = value.map(unescaped).transpose()?;
            match (&*name, value.as_deref()) {
                (b"scope", None) => return Err(InvalidQuery),
                (b"scope", Some(b"")) => scopes = Some(Vec::new()),
                (b"scope", Some(b"*")) => scopes = Some(Part::ALL.to_vec()),
                (b"scope", Some(value)) => {
                    let part = Part::ALL.into_iter().find(|part| part.scope().as_bytes() == value);
                    let part = part.ok_or(InvalidQuery)?;
                    let scopes = scopes.get_or_insert_default();
                    if !scopes.contains(&part) {
                        scopes.push(part);
                    }
                }
                (b"no-maint", _) => no_maintenance = true,
                _ => {}
            }
        }
        Ok(ScrapeQuery { parts: scopes.unwrap_or_else(|| Part::ALL.to_vec()), no_maintenance })
    }

    /// Whether a part is asked for.
    pub fn wants(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

/// The bytes that escapes (`%41`) and `+` stand for, up to one that is zero.
fn unescaped(text: &[u8]) -> Result<Vec<u8>, InvalidQuery> {
    let mut bytes = text.iter();
    let mut out = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next(), bytes.next()];
                let digit = |digit: Option<&u8>| digit.and_then(|digit| char::from(*digit).to_digit(16));
                let (Some(high), Some(low)) = (digit(digits[0]), digit(digits[1])) else { return Err(InvalidQuery) };
                // Two digits are a byte.
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    if let Some(end) = out.iter().position(|byte| *byte == 0) {
        out.truncate(end);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_haproxy_reads_them() {
        // Except for `baton`, each was tried with HAProxy 2.6.
        let check = |query: &str, expect: Option<(&str, bool)>| {
            let read = ScrapeQuery::parse(query.as_bytes()).ok().map(|read| {
                let names: Vec<&str> =
                    Part::ALL.into_iter().filter(|part| read.wants(*part)).map(Part::scope).collect();
                (names.join(" "), read.no_maintenance)
            });
            assert_eq!(read, expect.map(|(names, no_maintenance)| (names.to_owned(), no_maintenance)), "{query}");
        };
        let all = "global frontend listener backend server sticktable baton";
        for query in
            ["", "scope=*", "scope=%2a", "x=1", "extra-counters", "filter=x", "SCOPE=server", "=x", "scope%3dserver"]
        {
            check(query, Some((all, false)));
        }
        for query in ["scope", "scope=foo", "scope=Global", "scope=frontend&scope=foo", "scope=server;scope=frontend"] {
            check(query, None);
        }
        for query in ["scope=server%", "scope=server%zz", "x=%zz", "%zz", "x=%4", "scope=ser+ver", "scope==server"] {
            check(query, None);
        }
        check("scope=%20", None);
        check("scope=server%26no-maint", None);
        check("scope=", Some(("", false)));
        check("scope=*&scope=", Some(("", false)));
        check("scope=server&scope=", Some(("", false)));
        check("scope=&scope=server", Some(("server", false)));
        check("scope=server&scope=*", Some((all, false)));
        check("scope=frontend&scope=server&scope=server", Some(("frontend server", false)));
        check("&&scope=%73erver&", Some(("server", false)));
        check("sco%70e=server#x", Some(("server", false)));
        check("scope=server%00abc", Some(("server", false)));
        check("no-maint", Some((all, true)));
        check("no-maint=0&scope=global", Some(("global", true)));
        check("no-maintx&scope=baton", Some(("baton", false)));
    }
}
