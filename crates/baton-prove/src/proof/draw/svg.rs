//! SVG as text: a few elements, everything escaped, coordinates of one decimal.

use std::fmt::Write;

/// A drawing that grows element by element. Looks come from classes, which a style sheet around it or in it gives.
#[derive(Debug)]
pub(crate) struct Svg {
    text: String,
}

/// On which side of its place a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// A drawing of this size for a page, which scales it. `title` says what it is and `description` what it shows, for people
    /// who do not see it.
    pub(crate) fn new(width: f64, height: f64, title: &str, description: &str) -> Svg {
        Svg::open("", width, height, title, description)
    }

    /// A drawing that is a file of its own: with its size, and a style sheet in it.
    pub(crate) fn standalone(width: f64, height: f64, title: &str, description: &str, style: &str) -> Svg {
        let head = format!(r#" xmlns="http://www.w3.org/2000/svg" width="{}" height="{}""#, num(width), num(height));
        let mut svg = Svg::open(&head, width, height, title, description);
        let _ = writeln!(svg.text, "<style>{style}</style>");
        svg
    }

    fn open(head: &str, width: f64, height: f64, title: &str, description: &str) -> Svg {
        let (width, height, title, description) = (num(width), num(height), escape(title), escape(description));
        let mut text = String::new();
        let _ = writeln!(text, r#"<svg{head} viewBox="0 0 {width} {height}" role="img" aria-label="{title}">"#);
        let _ = writeln!(text, "<title>{title}</title><desc>{description}</desc>");
        Svg { text }
    }

    pub(crate) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(num);
        let _ = writeln!(self.text, r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#);
    }

    pub(crate) fn rect(&mut self, class: &str, (x, y): (f64, f64), width: f64, height: f64) {
        let [x, y, width, height] = [x, y, width.max(0.0), height.max(0.0)].map(num);
        let _ = writeln!(self.text, r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#);
    }

    pub(crate) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let (x, y, text) = (num(x), num(y), escape(text));
        let _ = writeln!(self.text, r#"<text class="{class}" x="{x}" y="{y}"{anchor}>{text}</text>"#);
    }

    pub(crate) fn path(&mut self, class: &str, path: &Path) {
        if !path.data.is_empty() {
            let _ = writeln!(self.text, r#"<path class="{class}" d="{}"/>"#, path.data);
        }
    }

    /// A path that says what it is when pointed at.
    pub(crate) fn titled_path(&mut self, class: &str, path: &Path, title: &str) {
        let (data, title) = (&path.data, escape(title));
        let _ = writeln!(self.text, r#"<path class="{class}" d="{data}"><title>{title}</title></path>"#);
    }

    /// The drawing as it is written.
    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// The outline of a shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    data: String,
}

impl Path {
    /// Starts a new part at this point.
    pub(crate) fn start(&mut self, (x, y): (f64, f64)) -> &mut Path {
        let _ = write!(self.data, "M{} {}", num(x), num(y));
        self
    }

    /// A straight line to this point.
    pub(crate) fn to(&mut self, (x, y): (f64, f64)) -> &mut Path {
        let _ = write!(self.data, "L{} {}", num(x), num(y));
        self
    }

    /// A horizontal line to this place.
    pub(crate) fn across(&mut self, x: f64) -> &mut Path {
        let _ = write!(self.data, "H{}", num(x));
        self
    }

    /// A vertical line to this place.
    pub(crate) fn down(&mut self, y: f64) -> &mut Path {
        let _ = write!(self.data, "V{}", num(y));
        self
    }

    /// Back to where the part started.
    pub(crate) fn close(&mut self) -> &mut Path {
        self.data.push('Z');
        self
    }
}

/// A coordinate with at most one decimal; what is no number becomes 0, so that the drawing stays a drawing.
fn num(value: f64) -> String {
    if !value.is_finite() {
        return "0".into();
    }
    let mut text = format!("{value:.1}");
    if text.ends_with(".0") {
        text.truncate(text.len() - 2);
    }
    if text == "-0" { "0".into() } else { text }
}

/// Text as XML and HTML take it anywhere. A character that XML does not know (section 2.2: most control characters) is replaced
/// by the sign for "unknown".
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\t' | '\n' => safe.push(character),
            '\0'..' ' | '\u{7f}'..'\u{a0}' | '\u{fffe}' | '\u{ffff}' => safe.push(char::REPLACEMENT_CHARACTER),
            // Marks that turn the direction of writing would let a command look like another one.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => safe.push(char::REPLACEMENT_CHARACTER),
            _ => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let cases = [
            ("a < b && c > 'd' \"e\"", "a &lt; b &amp;&amp; c &gt; &#39;d&#39; &quot;e&quot;"),
            ("Größe 日本 🦀\n\t", "Größe 日本 🦀\n\t"),
            ("\u{0}\u{1b}[31m\u{ffff}\u{202e}", "\u{fffd}\u{fffd}[31m\u{fffd}\u{fffd}"),
        ];
        for (input, expect) in cases {
            assert_eq!(escape(input), expect);
        }
    }

    #[test]
    fn a_drawing_is_xml_with_a_name() {
        let mut svg = Svg::standalone(100.0, 50.0, "a < b", "what it shows", ".x{fill:red}");
        svg.rect("x", (f64::NAN, -0.04), -3.0, 1.25);
        svg.text("x", Anchor::End, (1.0, 2.0), "</text><script>");
        let mut path = Path::default();
        svg.path("never", &path);
        path.start((0.0, 0.0)).to((1.0, 2.5)).across(3.0).down(4.0).close();
        svg.titled_path("y", &path, "é & è");
        let text = svg.finish();
        let xml = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let root = xml.root_element();
        assert_eq!(root.attribute("aria-label"), Some("a < b"));
        assert!(!text.contains("<script") && !text.contains("never"), "{text}");
        let rect = root.children().find(|child| child.has_tag_name("rect")).expect("the rectangle");
        assert_eq!(["x", "y", "width", "height"].map(|name| rect.attribute(name)), ["0", "0", "0", "1.2"].map(Some));
        assert!(text.contains("M0 0L1 2.5H3V4Z"), "{text}");
    }
}
