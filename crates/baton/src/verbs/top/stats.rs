//! What `show info` and `show stat` say, of Baton or of HAProxy: text to rows. Pure. Texts of the socket are escaped before they are shown.

use std::collections::HashMap;

use baton_control::printable;

/// Rows of one reading that are kept; a process with more shows the first of them.
pub const ROWS_MAX: usize = 100_000;

/// What kind of object a row is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// `FRONTEND`.
    Frontend,
    /// `BACKEND`.
    Backend,
    /// A server.
    Server,
}

/// An object with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its kind.
    pub kind: Kind,
    /// The section.
    pub proxy: String,
    /// The server; empty of a section.
    pub server: String,
    /// `UP`, `DOWN 1/2`, `OPEN` …
    pub status: String,
    /// What the last check found.
    pub check: String,
    /// Sessions now.
    pub sessions: u64,
    /// Sessions in the last second.
    pub rate: u64,
    /// Requests that wait.
    pub queue: u64,
    /// Responses 5xx.
    pub failed: u64,
    /// Failed requests, connections and responses.
    pub errors: u64,
    /// Retries.
    pub retries: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Seconds since the status changed; `None`: it never does.
    pub since: Option<u64>,
}

impl Row {
    /// The name by which commands and people know it.
    pub fn name(&self) -> String {
        match self.kind {
            Kind::Frontend | Kind::Backend => self.proxy.clone(),
            Kind::Server => format!("{}/{}", self.proxy, self.server),
        }
    }

    /// Whether it is what it should be.
    pub fn is_down(&self) -> bool {
        self.status.starts_with("DOWN")
    }

    /// Whether an operator took it out.
    pub fn is_out(&self) -> bool {
        self.status.starts_with("MAINT") || self.status.starts_with("DRAIN") || self.status.starts_with("NOLB")
    }
}

/// One reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// `show info`, by name.
    pub info: HashMap<String, String>,
    /// `show stat`, in its order.
    pub rows: Vec<Row>,
}

impl Sample {
    /// Of the response to `show info; show stat`.
    ///
    /// # Errors
    /// A sentence: it is something else.
    pub fn read(text: &str) -> Result<Sample, String> {
        let table = text.find("# pxname,").ok_or_else(|| {
            let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("an empty response");
            format!("no statistics: {}", printable::line(first))
        })?;
        let (info, table) = text.split_at(table);
        let info = info.lines().filter_map(|line| line.split_once(": "));
        let info = info.map(|(name, value)| (name.to_owned(), printable::line(value).into_owned())).collect();
        let mut lines = table.lines();
        let heading = lines.next().unwrap_or_default().trim_start_matches("# ");
        let columns: HashMap<&str, usize> = heading.split(',').enumerate().map(|(at, name)| (name, at)).collect();
        let rows = lines.take_while(|line| !line.is_empty()).filter_map(|line| row(&columns, &cells(line)));
        Ok(Sample { info, rows: rows.take(ROWS_MAX).collect() })
    }

    /// A number of `show info`.
    pub fn number(&self, name: &str) -> u64 {
        self.info.get(name).and_then(|value| value.parse().ok()).unwrap_or_default()
    }
}

fn row(columns: &HashMap<&str, usize>, cells: &[String]) -> Option<Row> {
    let cell = |name: &str| columns.get(name).and_then(|at| cells.get(*at)).map_or("", String::as_str);
    let number = |name: &str| cell(name).parse::<u64>().unwrap_or_default();
    let text = |name: &str| printable::line(cell(name)).into_owned();
    let kind = match cell("type") {
        "0" => Kind::Frontend,
        "1" => Kind::Backend,
        "2" => Kind::Server,
        _ => return None,
    };
    let check = [text("check_status"), text("last_chk")];
    Some(Row {
        kind,
        proxy: text("pxname"),
        server: if kind == Kind::Server { text("svname") } else { String::new() },
        status: text("status"),
        check: check.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join(" "),
        sessions: number("scur"),
        rate: number("rate"),
        queue: number("qcur"),
        failed: number("hrsp_5xx"),
        errors: number("ereq") + number("econ") + number("eresp"),
        retries: number("wretr"),
        bytes_in: number("bin"),
        bytes_out: number("bout"),
        since: cell("lastchg").parse().ok(),
    })
}

/// The cells of a line of CSV: quotes keep commas, and two of them are one.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            character => cell.push(character),
        }
    }
    cells.push(cell);
    cells
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What a process with a few objects says.
    pub const RESPONSE: &str = "Name: HAProxy\nVersion: 2.6.12\nUptime_sec: 4000\nCurrConns: 7\nConnRate: 3\n\n\
        # pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,status,weight,act,bck,chkfail,\
        chkdown,lastchg,type,rate,hrsp_5xx,check_status,last_chk,\n\
        web,FRONTEND,,,5,9,100,50,1000,2000,0,0,1,,,,,OPEN,,,,,,,0,12,3,,,\n\
        app,s1,0,0,2,4,,20,500,1000,,0,,2,1,4,0,UP,1,1,0,0,0,61,2,6,1,L7OK,\"a, \"\"b\"\"\",\n\
        app,s2,0,0,0,4,,20,500,1000,,0,,0,0,0,0,DOWN,1,1,0,0,0,5,2,0,0,L4CON,Connection refused,\n\
        app,BACKEND,1,2,2,4,10,40,1000,2000,0,0,,2,1,4,0,UP,2,2,0,,0,61,1,6,3,,,\n\n";

    #[test]
    fn a_response_becomes_rows() {
        let sample = Sample::read(RESPONSE).unwrap();
        let names: Vec<String> = sample.rows.iter().map(Row::name).collect();
        assert_eq!(names, ["web", "app/s1", "app/s2", "app"]);
        let s1 = &sample.rows[1];
        assert_eq!((s1.sessions, s1.rate, s1.errors, s1.retries, s1.since), (2, 6, 3, 4, Some(61)));
        assert_eq!((s1.check.as_str(), sample.rows[0].since), ("L7OK a, \"b\"", None));
        assert!(sample.rows[2].is_down() && sample.number("CurrConns") == 7 && sample.number("Nothing") == 0);
    }

    #[test]
    fn something_else_is_an_error_and_is_escaped() {
        let error = Sample::read("Permission \u{1b}denied\n").unwrap_err();
        assert_eq!(error, "no statistics: Permission \\u{1b}denied");
        assert!(Sample::read("").is_err());
        let hostile = RESPONSE.replace("app,s1", "app,\u{1b}]0;x\u{7}");
        assert!(!Sample::read(&hostile).unwrap().rows[1].server.contains('\u{1b}'));
    }
}
