//! Names of proxies, servers and stick tables in arguments: what a name that is left out means, and that a server's may have its
//! backend's in front.

use baton_model::{Ring, Role};

use crate::args::{Arg, ArgKind, Value};
use crate::outside::{Files, NameReference, ReferenceKind};
use crate::problem::RuleError;

/// Whether an argument of this kind is the name of a proxy, server or stick table.
pub(crate) fn is_name(kind: ArgKind) -> bool {
    matches!(
        kind,
        ArgKind::Frontend | ArgKind::Backend | ArgKind::Server | ArgKind::Table | ArgKind::OtherTable | ArgKind::Sink
    )
}

/// Puts the proxy itself in place of names that are left out, takes servers' names apart, and reports all names to the caller, who
/// knows which there are. `what` has the arguments, as messages call it.
pub(crate) fn resolve(what: &str, rows: &[Arg], args: &mut [Value], files: &dyn Files) -> Result<(), RuleError> {
    let asks_for_rate = what.ends_with("_rate'");
    for (nth, (row, arg)) in rows.iter().zip(args).enumerate().filter(|(_, (row, _))| is_name(row.kind)) {
        let by = format!("arg {} of {what}", nth + 1);
        let name = arg.name().map(str::to_owned);
        match row.kind {
            ArgKind::Server => {
                let name = name.unwrap_or_default();
                let (backend, server) = match name.rsplit_once('/') {
                    Some((backend, server)) => (backend.to_owned(), server),
                    None => match files.within() {
                        Some((proxy, role)) if role.is_backend() => (proxy.to_owned(), &*name),
                        Some((proxy, _)) => {
                            return Err(RuleError::new(format!(
                                "unable to find server '{name}' in proxy '{proxy}', referenced in {by}"
                            ))
                            .hint("write the backend's name and a slash in front"));
                        }
                        None => (String::new(), &*name),
                    },
                };
                if server.is_empty() {
                    return Err(RuleError::new(format!("missing server name in {by}")));
                }
                *arg = Value::Server(backend.as_str().into(), server.into());
                if !backend.is_empty() {
                    let kind = ReferenceKind::Server(server.to_owned());
                    files.refers(NameReference { by, proxy: backend, kind, asks_for_rate });
                }
            }
            ArgKind::Sink => {
                let name = name.filter(|name| !matches!(&**name, "stdout" | "stderr" | Ring::BUILT_IN));
                let Some(proxy) = name else { continue };
                files.refers(NameReference { by, proxy, kind: ReferenceKind::Ring, asks_for_rate: false });
            }
            ArgKind::OtherTable => {
                let Some(proxy) = name else { continue };
                files.refers(NameReference { by, proxy, kind: ReferenceKind::Table, asks_for_rate: false });
            }
            ArgKind::Table => {
                let Some(proxy) = name.or_else(|| files.within().map(|(proxy, _)| proxy.to_owned())) else { continue };
                *arg = Value::Str(proxy.as_bytes().into());
                files.refers(NameReference { by, proxy, kind: ReferenceKind::Table, asks_for_rate: false });
            }
            kind => {
                let (role, word, named) = match kind {
                    ArgKind::Frontend => (Role::Frontend, "frontend", ReferenceKind::Frontend),
                    _ => (Role::Backend, "backend", ReferenceKind::Backend),
                };
                let refer =
                    |proxy| files.refers(NameReference { by: by.clone(), proxy, kind: named.clone(), asks_for_rate });
                match (name, files.within()) {
                    (Some(proxy), _) => refer(proxy),
                    (None, Some((proxy, own))) => {
                        let fits = if role == Role::Frontend { own.is_frontend() } else { own.is_backend() };
                        if !fits {
                            let message = format!("proxy '{proxy}', referenced in {by}, has not {word} capability");
                            return Err(RuleError::new(message).hint(format!("name a {word} in parentheses")));
                        }
                        *arg = Value::Str(proxy.as_bytes().into());
                        refer(proxy.to_owned());
                    }
                    (None, None) => {}
                }
            }
        }
    }
    Ok(())
}
