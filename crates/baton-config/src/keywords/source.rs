//! `source` of backends and servers (configuration manual, 4.2 and 5.2).

use baton_model::SourceAddress;
use baton_rules::suggestion;

use crate::address::{self, Port, Text};
use crate::lower::Call;

/// `ADDRESS[:PORT[-PORT]] [usesrc client|clientip] [interface NAME]` from a word on; gives back the words used.
pub(crate) fn source_words(call: &mut Call<'_, '_>, at: usize, ranges: bool) -> (Option<SourceAddress>, usize) {
    let text = call.line.word(at);
    let mut used = 1;
    let fault = |call: &mut Call<'_, '_>, word, message: String| call.error(word, "bad-value", message);
    let place = match address::parse(text) {
        Ok(Text::Inet { host, family, port }) => {
            let ports = match port {
                Port::Absent => Some((0, 0)),
                Port::One(port) => Some((port, port)),
                Port::Range(low, high) if ranges => Some((low, high)),
                Port::Range(..) | Port::Offset(_) => {
                    fault(call, at, format!("'source {text}' : port range not permitted here in '{text}'"));
                    None
                }
            };
            match address::literal(&host, family).or_else(|| call.context.resolve(&host, family)) {
                Some(ip) => ports.map(|ports| (ip, ports)),
                None => {
                    fault(call, at, format!("'source {text}' : invalid address: '{host}' in '{text}'"));
                    None
                }
            }
        }
        Ok(_) => {
            fault(call, at, format!("'source {text}' : expects an IP address"));
            None
        }
        Err(message) => {
            fault(call, at, format!("'source {text}' : {message}"));
            None
        }
    };
    let mut source = place.map(|(ip, ports)| SourceAddress { ip, ports, use_client: None, interface: None });
    let mut valid = source.is_some();
    loop {
        match call.line.word(at + used) {
            "usesrc" => {
                let whose = match call.line.word(at + used + 1) {
                    "client" => Some(true),
                    "clientip" => Some(false),
                    other => {
                        let known = other.starts_with("hdr_ip(") || address::parse(other).is_ok();
                        let message = match (other, known) {
                            ("", _) | (_, false) => {
                                "'usesrc' expects <addr>[:<port>], 'client', or 'clientip' as argument."
                            }
                            (_, true) => "'usesrc' with an address is not supported yet",
                        };
                        let hint = suggestion(other, ["client", "clientip"]);
                        call.error_with(
                            at + used + 1,
                            if known { "not-yet" } else { "bad-value" },
                            message.into(),
                            hint,
                        );
                        None
                    }
                };
                valid &= whose.is_some();
                if let Some(source) = &mut source {
                    source.use_client = whose;
                }
                used += 2;
            }
            "interface" => {
                let name = call.line.word(at + used + 1);
                if name.is_empty() {
                    call.error(at + used + 1, "missing-argument", "'source' : missing interface name.".into());
                    valid = false;
                }
                if let Some(source) = &mut source {
                    source.interface = Some(name.into());
                }
                used += 2;
            }
            _ => break,
        }
    }
    (source.filter(|_| valid), used)
}
