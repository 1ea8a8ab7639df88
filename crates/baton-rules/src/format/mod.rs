//! Log-format strings (configuration manual 8.2.6): text, `%[expression]` and `%x` tags. Actions use them for values of headers and
//! the like, the log for its lines.
//!
//! The two differ in what stands for nothing (`-` in a log line) and in how a value that could end a line is written: `%XX` in a
//! message, `#XX` in a log line. HAProxy 2.6 lets such a byte of an expression pass into the log; we do not.

mod encode;
mod tag;
mod value;

use std::sync::LazyLock;

use baton_model::LogFormat;

use crate::context::Context;
use crate::expr::Expr;
use crate::nearest::nearest;
use crate::outside::{Files, NoFiles};
use crate::place::RulePosition;
use crate::problem::RuleError;
use crate::sample::Type;

use encode::{Encoding, Flags};
use tag::TAGS;

pub use tag::Tag;

/// A compiled format.
#[derive(Clone, Debug)]
pub struct Format {
    pieces: Vec<FormatPiece>,
    use_: FormatUse,
    /// The line is one object of named items.
    encoding: Option<(Encoding, bool)>,
}

/// What a format is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FormatUse {
    /// A value of a message or of a rule.
    Value,
    /// `unique-id-format`: like a value, with blanks merged.
    UniqueId,
    /// A log line; tags of HTTP only where the proxy speaks it.
    Line { http: bool },
}

#[derive(Clone, Debug)]
enum FormatPiece {
    Text(Box<[u8]>),
    /// A blank, unless one was just written.
    Blank,
    Item(Box<FormatItem>),
}

/// A variable part.
#[derive(Clone, Debug)]
struct FormatItem {
    content: Content,
    flags: Flags,
    /// Its name in an encoded line.
    name: Option<Box<str>>,
    /// The type that it has in an encoded line, if that was given.
    as_type: Option<Type>,
}

#[derive(Clone, Debug)]
enum Content {
    Expr(Expr),
    Tag(Tag),
    /// `%H`.
    Hostname(Box<str>),
}

/// The formats with an option of their own (8.2.2 to 8.2.4).
const TCP: &str = "%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq";
const HTTP: &str =
    "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r";
const HTTP_CLF: &str = "%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc \
     %ac %fc %bc %sc %rc %sq %bq %CC %CS %hrl %hsl";
const HTTPS: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r \
     %[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/%[ssl_fc_is_resumed] %[ssl_fc_sni]/%sslv/%sslc";

impl Format {
    /// The format of `option tcplog`, `option httplog` or `option httpslog`. `None`: the lines have none, or one of their own.
    pub fn built_in(format: LogFormat) -> Option<&'static Format> {
        fn compiled(text: &str, http: bool) -> Format {
            Format::compile_for(text, RulePosition::Log, FormatUse::Line { http }, &NoFiles)
                .expect("the built-in formats are valid")
        }
        static FORMATS: [LazyLock<Format>; 4] = [
            LazyLock::new(|| compiled(TCP, false)),
            LazyLock::new(|| compiled(HTTP, true)),
            LazyLock::new(|| compiled(HTTP_CLF, true)),
            LazyLock::new(|| compiled(HTTPS, true)),
        ];
        match format {
            LogFormat::Default | LogFormat::Custom => None,
            LogFormat::Tcp => Some(&FORMATS[0]),
            LogFormat::Http => Some(&FORMATS[1]),
            LogFormat::HttpClf => Some(&FORMATS[2]),
            LogFormat::Https => Some(&FORMATS[3]),
        }
    }

    /// Compiles a format for a rule at `place`.
    pub fn compile(text: &str, place: RulePosition, files: &dyn Files) -> Result<Format, RuleError> {
        match text.bytes().find(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            Some(byte) => Err(RuleError::new(format!("the byte 0x{byte:02x} is not allowed in a message head"))),
            None => Format::compile_lines(text, place, files),
        }
    }

    /// Compiles the format of a body, which may have several lines.
    pub(crate) fn compile_lines(text: &str, place: RulePosition, files: &dyn Files) -> Result<Format, RuleError> {
        Format::compile_for(text, place, FormatUse::Value, files)
    }

    /// Compiles a format for this use.
    pub(crate) fn compile_for(
        text: &str,
        place: RulePosition,
        use_: FormatUse,
        files: &dyn Files,
    ) -> Result<Format, RuleError> {
        if use_ != FormatUse::Value && text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(RuleError::new("a format must be a single line"));
        }
        let format = Format { pieces: Vec::new(), use_, encoding: None };
        let mut compiler = Compiler { format, plain: Vec::new(), flags: Flags::default(), place, files };
        compiler.run(text)?;
        if compiler.format.is_binary() && !matches!(use_, FormatUse::Line { .. }) {
            // Its bytes could end a line of a message.
            let fault = RuleError::new("'+bin' is for log lines: other values may not have any byte");
            return Err(fault.hint("leave out '+bin'"));
        }
        Ok(compiler.format)
    }

    /// Bytes that stay as they are.
    pub(crate) fn verbatim(bytes: &[u8]) -> Format {
        Format { pieces: vec![FormatPiece::Text(bytes.into())], use_: FormatUse::Value, encoding: None }
    }

    /// The text, if the format has no variable part.
    pub fn constant(&self) -> Option<&[u8]> {
        match &self.pieces[..] {
            [] => Some(&[]),
            [FormatPiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The parts that stand as they are.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().filter_map(|piece| match piece {
            FormatPiece::Text(text) => Some(&text[..]),
            FormatPiece::Blank | FormatPiece::Item(_) => None,
        })
    }

    /// Whether lines may have any byte: that is asked for by `+bin`.
    pub fn is_binary(&self) -> bool {
        self.encoding.is_some_and(|(_, is_binary)| is_binary) || self.items().any(|item| item.flags.binary)
    }

    fn items(&self) -> impl Iterator<Item = &FormatItem> {
        self.pieces.iter().filter_map(|piece| match piece {
            FormatPiece::Item(item) => Some(&**item),
            FormatPiece::Blank | FormatPiece::Text(_) => None,
        })
    }

    /// Appends the format's value. No byte of a value can end a line.
    pub fn write(&self, cx: &Context<'_>, out: &mut Vec<u8>) {
        if let Some((encoding, is_binary)) = self.encoding {
            return self.write_object(encoding, is_binary, cx, out);
        }
        // Where the blank ends that was written last, or the beginning: no other one follows there.
        let mut blank_end = out.len();
        for piece in &self.pieces {
            match piece {
                FormatPiece::Text(text) => out.extend_from_slice(text),
                FormatPiece::Blank if out.len() == blank_end => {}
                FormatPiece::Blank => {
                    out.push(b' ');
                    blank_end = out.len();
                }
                FormatPiece::Item(item) => {
                    let start = out.len();
                    item.write(self.use_, cx, out);
                    if !matches!(self.use_, FormatUse::Line { .. }) {
                        encode::encode_controls(out, start);
                    }
                    if !item.may_vanish() {
                        // Even an empty value keeps two blanks apart.
                        blank_end = usize::MAX;
                    }
                }
            }
        }
    }

    /// Appends one object with the named items.
    fn write_object(&self, encoding: Encoding, is_binary: bool, cx: &Context<'_>, out: &mut Vec<u8>) {
        let named = self.items().filter_map(|item| Some((item.name.as_deref()?, item)));
        let start = out.len();
        match encoding {
            Encoding::Json => {
                out.push(b'{');
                for (at, (name, item)) in named.enumerate() {
                    if at > 0 {
                        out.extend_from_slice(b", ");
                    }
                    encode::json_text(name.as_bytes(), out);
                    out.extend_from_slice(b": ");
                    item.value(cx).json(out);
                }
                out.push(b'}');
            }
            Encoding::Cbor => {
                // A map of a length that is not written before it, and its end.
                out.push(0xbf);
                for (name, item) in named {
                    encode::Item::Text(name.as_bytes().into()).cbor(out);
                    item.value(cx).cbor(out);
                }
                out.push(0xff);
                if !is_binary {
                    encode::to_hex(out, start);
                }
            }
        }
    }
}

/// A format while it is read.
struct Compiler<'a> {
    format: Format,
    plain: Vec<u8>,
    /// What `%o` said last.
    flags: Flags,
    place: RulePosition,
    files: &'a dyn Files,
}

impl Compiler<'_> {
    fn run(&mut self, text: &str) -> Result<(), RuleError> {
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            self.plain(&rest[..at]);
            rest = &rest[at + 1..];
            rest = match rest.strip_prefix('%') {
                Some(after) => {
                    self.plain.push(b'%');
                    after
                }
                None => self.item(rest)?,
            };
        }
        self.plain(rest);
        self.end_text();
        Ok(())
    }

    /// Takes text. Blanks are merged but in values.
    fn plain(&mut self, text: &str) {
        if self.format.use_ == FormatUse::Value {
            return self.plain.extend_from_slice(text.as_bytes());
        }
        for (at, part) in text.split(' ').enumerate() {
            if at > 0 {
                self.end_text();
                if !matches!(self.format.pieces.last(), Some(FormatPiece::Blank)) {
                    self.format.pieces.push(FormatPiece::Blank);
                }
            }
            self.plain.extend_from_slice(part.as_bytes());
        }
    }

    fn end_text(&mut self) {
        if !self.plain.is_empty() {
            self.format.pieces.push(FormatPiece::Text(std::mem::take(&mut self.plain).into()));
        }
    }

    /// Reads what follows a percent sign: `[(NAME[:TYPE])][{FLAGS}]TAG` or `…[EXPRESSION]`. Gives what is left.
    fn item<'t>(&mut self, text: &'t str) -> Result<&'t str, RuleError> {
        let mut rest = text;
        let (mut flags, mut name, mut as_type) = (self.flags, None, None);
        if let Some(inner) = rest.strip_prefix('(') {
            let missing = || RuleError::new("a closing ')' is missing after '%('");
            let (named, after) = inner.split_once(')').ok_or_else(missing)?;
            (name, as_type) = item_name(named)?;
            rest = after;
        }
        if let Some(inner) = rest.strip_prefix('{') {
            let missing = || RuleError::new("a closing '}' is missing after '%{'");
            let (words, after) = inner.split_once('}').ok_or_else(missing)?;
            read_flags(words, &mut flags)?;
            rest = after;
        }
        if let Some(inner) = rest.strip_prefix('[') {
            let end = expression_end(inner)?;
            let expr = Expr::compile(&inner[..end], self.place, self.files)?;
            self.push(FormatItem { content: Content::Expr(expr), flags, name, as_type });
            return Ok(&inner[end + 1..]);
        }
        let end = rest.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word == "o" {
            self.flags_for_all(flags);
            return Ok(after);
        }
        let (tag, is_http) = find_tag(word)?;
        if is_http && self.format.use_ == (FormatUse::Line { http: false }) {
            return Err(RuleError::new(format!("format variable '{word}' is reserved for HTTP mode")));
        }
        let content = match tag {
            Tag::Hostname => Content::Hostname(self.files.hostname().into()),
            tag => Content::Tag(tag),
        };
        self.push(FormatItem { content, flags, name, as_type });
        Ok(after)
    }

    /// `%{…}o`. An encoding that stands first is that of the whole line.
    fn flags_for_all(&mut self, flags: Flags) {
        let is_first = self.format.items().next().is_none();
        self.flags = flags;
        if let Some(encoding) = flags.encoding.filter(|_| is_first) {
            self.format.encoding = Some((encoding, flags.binary));
        }
    }

    fn push(&mut self, item: FormatItem) {
        self.end_text();
        self.format.pieces.push(FormatPiece::Item(Box::new(item)));
    }
}

/// `NAME` or `NAME:TYPE`.
fn item_name(text: &str) -> Result<(Option<Box<str>>, Option<Type>), RuleError> {
    let (name, kind) = text.split_once(':').map_or((text, None), |(name, kind)| (name, Some(kind)));
    let is_name = |char: char| char.is_ascii_alphanumeric() || "_-.".contains(char);
    if let Some(char) = name.chars().find(|char| !is_name(*char)) {
        return Err(RuleError::new(format!("'{char}' is not allowed in the item name '{name}'"))
            .hint("use letters, digits, '_', '-' and '.'"));
    }
    let as_type = match kind {
        None => None,
        Some("str") => Some(Type::Str),
        Some("sint") => Some(Type::Int),
        Some("bool") => Some(Type::Bool),
        Some(kind) => {
            return Err(RuleError::unknown("item type", kind, &[], ["str", "sint", "bool"].into_iter()));
        }
    };
    Ok(((!name.is_empty()).then(|| name.into()), as_type))
}

fn find_tag(name: &str) -> Result<(Tag, bool), RuleError> {
    if let Some((_, tag, is_http)) = TAGS.iter().find(|(known, ..)| *known == name) {
        return Ok((*tag, *is_http));
    }
    if name.is_empty() {
        return Err(RuleError::new("a name or '[' is missing after '%'").hint("write '%%' for a percent sign"));
    }
    let fault = RuleError::new(format!("unknown log-format variable '%{name}'"));
    Err(match nearest(name, TAGS.iter().map(|(known, ..)| *known).filter(|known| known.len() > 1)) {
        Some(near) if name.len() > 1 => fault.hint(format!("did you mean '%{near}'? A percent sign is written '%%'")),
        _ => fault.hint("write '%%' for a percent sign"),
    })
}

fn read_flags(words: &str, flags: &mut Flags) -> Result<(), RuleError> {
    const KNOWN: [&str; 12] = ["+Q", "-Q", "+X", "-X", "+E", "-E", "+bin", "-bin", "+json", "-json", "+cbor", "-cbor"];
    for flag in words.split(',') {
        match flag.trim() {
            "+Q" => flags.quote = true,
            "-Q" => flags.quote = false,
            "+X" => flags.hex = true,
            "-X" => flags.hex = false,
            "+E" => flags.escape = true,
            "-E" => flags.escape = false,
            "+bin" => flags.binary = true,
            "-bin" => flags.binary = false,
            "+json" => flags.encoding = Some(Encoding::Json),
            "+cbor" => flags.encoding = Some(Encoding::Cbor),
            "-json" | "-cbor" => flags.encoding = None,
            _ => {
                return Err(RuleError::new(format!("unknown flag '{flag}' in '%{{{words}}}'"))
                    .hint("use +Q, -Q, +X, -X, +E, -E, +bin, +json or +cbor")
                    .suggest(flag, KNOWN));
            }
        }
    }
    Ok(())
}

/// Where the `]` of `%[…]` stands: quotes inside of parentheses protect it.
fn expression_end(text: &str) -> Result<usize, RuleError> {
    let mut quote = None;
    let mut depth = 0usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (byte, quote) {
            (b']', None) if depth == 0 => return Ok(at),
            (b'(', None) => depth += 1,
            (b')', None) => depth = depth.saturating_sub(1),
            (b'"' | b'\'', None) if depth > 0 => quote = Some(byte),
            (b'\\', None | Some(b'"')) => _ = bytes.next(),
            (_, Some(open)) if byte == open => quote = None,
            _ => {}
        }
    }
    Err(RuleError::new(format!("a closing ']' is missing after '%[{text}'")))
}
