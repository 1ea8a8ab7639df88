//! Words as statements: a line, and the block behind it.

use crate::convert::ConvertFault;

use super::words::Token;

/// How deep blocks may lie in each other. keepalived knows five levels.
const DEPTH_MAX: usize = 16;

/// A line of words, with what stands in brackets behind it.
#[derive(Debug, Default)]
pub(super) struct Statement {
    pub line: u32,
    /// Never empty.
    pub words: Vec<String>,
    pub block: Option<Vec<Statement>>,
}

impl Statement {
    /// A word, or nothing where there is none.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map(String::as_str).unwrap_or_default()
    }

    /// What is in its block.
    pub fn inside(&self) -> &[Statement] {
        self.block.as_deref().unwrap_or_default()
    }

    /// As people call it; an empty word is a pair of quotes.
    pub fn text(&self) -> String {
        let words = self.words.iter().map(|word| if word.is_empty() { "\"\"" } else { word });
        words.collect::<Vec<_>>().join(" ")
    }

    /// The words behind the first one.
    pub fn value(&self) -> String {
        self.words[1..].join(" ")
    }
}

/// Puts blocks into their statements.
pub(super) fn build(lines: Vec<(u32, Vec<Token>)>) -> Result<Vec<Statement>, ConvertFault> {
    // Blocks that are open, the file itself first.
    let mut open: Vec<Vec<Statement>> = vec![Vec::new()];
    let mut last_line = 0;
    for (line, tokens) in lines {
        last_line = line;
        let mut words = Vec::new();
        for token in tokens {
            match token {
                Token::Word(word) => words.push(word),
                Token::Open => {
                    end(&mut open, line, &mut words);
                    let is_free = open.last().and_then(|block| block.last()).is_some_and(|last| last.block.is_none());
                    if !is_free {
                        return Err(ConvertFault::at(line, "a block begins here, and no word says of what"));
                    }
                    if open.len() > DEPTH_MAX {
                        return Err(ConvertFault::at(
                            line,
                            format!("blocks lie deeper than {DEPTH_MAX} in each other"),
                        ));
                    }
                    open.push(Vec::new());
                }
                Token::Close => {
                    end(&mut open, line, &mut words);
                    close(&mut open, line)?;
                }
            }
        }
        end(&mut open, line, &mut words);
    }
    if open.len() > 1 {
        let begun = open.get(open.len() - 2).and_then(|block| block.last());
        let (line, what) = begun.map_or((last_line, String::new()), |begun| (begun.line, begun.text()));
        return Err(ConvertFault::at(line, format!("the block of `{}` has no end (`}}`)", super::super::shown(&what))));
    }
    Ok(open.pop().unwrap_or_default())
}

/// A statement ends with its line and at a bracket.
fn end(open: &mut [Vec<Statement>], line: u32, words: &mut Vec<String>) {
    let words = std::mem::take(words);
    if let (Some(block), false) = (open.last_mut(), words.is_empty()) {
        block.push(Statement { line, words, block: None });
    }
}

fn close(open: &mut Vec<Vec<Statement>>, line: u32) -> Result<(), ConvertFault> {
    let block = open.pop().unwrap_or_default();
    match open.last_mut().and_then(|block| block.last_mut()) {
        Some(statement) => {
            statement.block = Some(block);
            Ok(())
        }
        None => Err(ConvertFault::at(line, "a block ends here (`}`), and none has begun")),
    }
}
