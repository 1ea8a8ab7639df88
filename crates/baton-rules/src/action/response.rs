//! What `return`, `deny`, `tarpit` and `http-error` respond with (configuration manual 4.2 `http-request return`): the proxy's page of a
//! status, a file with a whole response, or headers and a body of the rule's own.

use std::sync::Arc;

use super::RuleArguments;
use super::header::is_framing;
use crate::context::Context;
use crate::error_file;
use crate::format::Format;
use crate::nearest::suggestion;
use crate::problem::{LocatedError, RuleError};
use crate::reply::{PAGES, Reply, ResponseSource, RuleResponse};

/// A response as a rule describes it.
#[derive(Clone, Debug)]
pub(crate) struct ResponseRule {
    status: u16,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// `default-errorfiles`: the proxy's error page.
    ErrorPage,
    /// `errorfile`, `errorfiles`: a whole response.
    File(Arc<[u8]>),
    /// The rest.
    Composed { headers: Vec<(Vec<u8>, Format)>, content_type: Option<Vec<u8>>, body: Option<Format> },
}

/// What the words so far say about the content.
enum Payload {
    ErrorPage,
    File(Arc<[u8]>),
    /// `errorfiles`, whose status may come later.
    Section {
        name: String,
        word: usize,
    },
    /// What `string`, `file` and their likes give; true: not a format.
    Body(Format, bool),
}

/// What `return` and `deny` take.
const ARGUMENTS: [&str; 13] = [
    "status",
    "deny_status",
    "content-type",
    "string",
    "lf-string",
    "file",
    "lf-file",
    "hdr",
    "default-errorfiles",
    "errorfile",
    "errorfiles",
    "if",
    "unless",
];

/// Statuses whose responses have no body (RFC 9110 6.4.1).
const WITHOUT_BODY: [u16; 2] = [204, 304];

impl ResponseRule {
    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Evaluates it.
    pub fn make(&self, cx: &mut Context<'_>) -> RuleResponse {
        let source = match &self.content {
            Content::ErrorPage => ResponseSource::ErrorPage,
            Content::File(content) => ResponseSource::File(Arc::clone(content)),
            Content::Composed { headers, content_type, body } => {
                cx.own_status = Some(self.status);
                let content_type = content_type.as_deref();
                ResponseSource::Composed(compose(self.status, headers, content_type, body.as_ref(), cx))
            }
        };
        RuleResponse { status: self.status, source }
    }

    /// The proxy's page of the status, if there is one.
    pub fn into_error_page(self, words: &RuleArguments<'_, '_>) -> Result<ResponseRule, LocatedError> {
        check_page(self.status, words)?;
        Ok(ResponseRule { content: Content::ErrorPage, ..self })
    }
}

/// Headers without a value are left out, and the type of an empty body, as in HAProxy.
fn compose(
    status: u16,
    headers: &[(Vec<u8>, Format)],
    content_type: Option<&[u8]>,
    body: Option<&Format>,
    cx: &Context<'_>,
) -> Reply {
    let text = |format: &Format| {
        let mut out = Vec::new();
        format.write(cx, &mut out);
        out
    };
    let body = body.map(text).unwrap_or_default();
    let headers = headers.iter().map(|(name, value)| (name.clone(), text(value)));
    Reply {
        status,
        headers: headers.filter(|(_, value)| !value.is_empty()).collect(),
        content_type: content_type.filter(|_| !body.is_empty()).map(<[u8]>::to_vec),
        body,
    }
}

/// Reads the arguments up to the condition. True: a status was given.
pub(super) fn read(words: &mut RuleArguments<'_, '_>, status: u16) -> Result<(ResponseRule, bool), LocatedError> {
    let (mut status, mut has_status) = (status, false);
    let mut headers = Vec::new();
    let mut content_type: Option<&str> = None;
    let mut payload: Option<(&str, Payload)> = None;
    while let Some(word) = words.peek() {
        match word {
            "status" | "deny_status" => {
                words.at += 1;
                status = read_status(words)?;
                has_status = true;
            }
            "content-type" => {
                words.at += 1;
                content_type = Some(words.take("a content type")?);
                if content_type.is_some_and(|text| text.bytes().any(|byte| byte.is_ascii_control())) {
                    return Err(words.blame(RuleError::new("a content type must be a single line")));
                }
            }
            "hdr" => {
                words.at += 1;
                if let Some(header) = read_header(words)? {
                    headers.push(header);
                }
            }
            "default-errorfiles" | "errorfile" | "errorfiles" | "string" | "lf-string" | "file" | "lf-file" => {
                words.at += 1;
                if let Some((before, _)) = payload {
                    let fault = RuleError::new(format!("unexpected '{word}' argument, '{before}' already defined"));
                    return Err(words.blame(fault));
                }
                payload = Some((word, read_payload(words, word)?));
            }
            _ => match suggestion(word, ARGUMENTS) {
                Some(hint) => {
                    let fault = RuleError::new(format!("unexpected argument '{word}'")).hint(hint);
                    return Err(fault.at(words.at));
                }
                None => break,
            },
        }
    }
    let content = match payload {
        Some((_, Payload::Body(body, is_raw))) => {
            check_body(status, &body, is_raw, content_type, words)?;
            let content_type = content_type.map(|text| text.as_bytes().to_vec());
            Content::Composed { headers, content_type, body: Some(body) }
        }
        None => {
            if let Some(ignored) = content_type {
                words.warn(RuleError::new(format!("content-type '{ignored}' is ignored: there is no payload")));
            }
            Content::Composed { headers, content_type: None, body: None }
        }
        Some((word, whole)) => {
            if let Some(ignored) = content_type {
                words.warn(RuleError::new(format!("content-type '{ignored}' is ignored with '{word}'")));
            }
            if !headers.is_empty() {
                words.warn(RuleError::new(format!("'hdr' is ignored with '{word}'")));
            }
            whole_response(whole, status, words)?
        }
    };
    Ok((ResponseRule { status, content }, has_status))
}

/// The status of a rule, from 200 to 599.
fn read_status(words: &mut RuleArguments<'_, '_>) -> Result<u16, LocatedError> {
    let text = words.take("a status")?;
    match text.parse() {
        Ok(status @ 200..=599) => Ok(status),
        _ => Err(words.blame(RuleError::new(format!("'{text}' is not a status from 200 to 599")))),
    }
}

/// `hdr`: `None` for one that the response has anyway.
fn read_header(words: &mut RuleArguments<'_, '_>) -> Result<Option<(Vec<u8>, Format)>, LocatedError> {
    let name = super::header::name(words)?;
    let value = words.line("the header's value")?;
    if is_framing(&name) || name.eq_ignore_ascii_case(b"content-type") {
        let shown = String::from_utf8_lossy(&name).into_owned();
        words.warn(RuleError::new(format!("header '{shown}' is ignored: it follows from the payload")));
        return Ok(None);
    }
    Ok(Some((name, value)))
}

fn read_payload(words: &mut RuleArguments<'_, '_>, word: &str) -> Result<Payload, LocatedError> {
    Ok(match word {
        "default-errorfiles" => Payload::ErrorPage,
        "errorfile" => {
            let path = words.take("a file")?;
            let file = error_file::read(path, words.around.files).map_err(|fault| words.blame(fault))?;
            Payload::File(file)
        }
        "errorfiles" => {
            let name = words.take("the name of an http-errors section")?.to_owned();
            Payload::Section { name, word: words.at - 1 }
        }
        "string" | "lf-string" => {
            let text = words.take("the content")?;
            Payload::Body(body(words, text, word == "lf-string")?, word == "string")
        }
        _ => {
            let path = words.take("a file")?;
            let bytes = words.around.files.read(path);
            let bytes = bytes.map_err(|error| words.blame(RuleError::new(format!("cannot read '{path}': {error}"))))?;
            let room = words.around.files.buffer().bytes;
            if bytes.len() > room {
                let fault = format!("file '{path}' exceeds the buffer size ({} > {room})", bytes.len());
                return Err(words.blame(RuleError::new(fault).hint("raise 'tune.bufsize'")));
            }
            match word {
                "lf-file" => Payload::Body(body(words, &String::from_utf8_lossy(&bytes), true)?, false),
                _ => Payload::Body(Format::verbatim(&bytes), true),
            }
        }
    })
}

fn body(words: &RuleArguments<'_, '_>, text: &str, is_format: bool) -> Result<Format, LocatedError> {
    match is_format {
        true => Format::compile_lines(text, words.around.place, words.around.files).map_err(|fault| words.blame(fault)),
        false => Ok(Format::verbatim(text.as_bytes())),
    }
}

/// A payload needs a type and a status that may have one, and should leave room for headers.
fn check_body(
    status: u16,
    body: &Format,
    is_raw: bool,
    content_type: Option<&str>,
    words: &mut RuleArguments<'_, '_>,
) -> Result<(), LocatedError> {
    let len = body.constant().map(<[u8]>::len);
    if len == Some(0) {
        return Ok(());
    }
    if WITHOUT_BODY.contains(&status) {
        return Err(words.blame(RuleError::new(format!("no body expected for {status} responses"))));
    }
    if content_type.is_none() {
        let fault = RuleError::new("a content type must be defined when non-empty payload is configured");
        return Err(words.blame(fault.hint("add 'content-type text/plain'")));
    }
    let room = words.around.files.buffer();
    if is_raw && len.is_some_and(|len| len > room.bytes.saturating_sub(room.reserve)) {
        words.warn(
            RuleError::new("the payload runs over the buffer space reserved for rewriting headers")
                .hint("shorten it, or raise 'tune.bufsize'"),
        );
    }
    Ok(())
}

fn whole_response(payload: Payload, status: u16, words: &mut RuleArguments<'_, '_>) -> Result<Content, LocatedError> {
    Ok(match payload {
        Payload::File(content) => Content::File(content),
        Payload::Section { name, word } => {
            let Some(section) = words.around.files.http_errors(&name) else {
                return Err(RuleError::new(format!("unknown http-errors section '{name}'")).at(word));
            };
            match section.file(status) {
                Some(file) => Content::File(Arc::clone(&file.content)),
                None => {
                    words.warn(
                        RuleError::new(format!("status '{status}' is not declared in http-errors section '{name}'"))
                            .hint("the response will be empty"),
                    );
                    Content::Composed { headers: Vec::new(), content_type: None, body: None }
                }
            }
        }
        Payload::ErrorPage | Payload::Body(..) => {
            check_page(status, words)?;
            Content::ErrorPage
        }
    })
}

fn check_page(status: u16, words: &RuleArguments<'_, '_>) -> Result<(), LocatedError> {
    match PAGES.contains(&status) {
        true => Ok(()),
        false => Err(words.blame(
            RuleError::new(format!("there is no standard page for status {status}"))
                .hint("give 'content-type' and 'string', or 'status' instead of 'deny_status'"),
        )),
    }
}
