//! The text of a selector, cut into tokens and read by one token of look-ahead.

use super::{NO_VALUES, Operator, Requirement, SelectorError, key_fault, value_fault};

/// The requirements that `text` joins by commas.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { rest: Tokens { text, at: 0 } };
    let mut requirements = Vec::new();
    if parser.rest.peek().1 == Token::End {
        return Ok(requirements);
    }
    loop {
        requirements.push(parser.requirement()?);
        match parser.rest.next() {
            (_, Token::End) => return Ok(requirements),
            (_, Token::Comma) => {}
            (at, found) => return Err(unexpected(at, "`,` or the end", found)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    Word(&'t str),
    Comma,
    Open,
    Close,
    Not,
    Equal,
    NotEqual,
    End,
}

/// The text from byte `at` on, cut into tokens.
#[derive(Clone, Copy, Debug)]
struct Tokens<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Tokens<'t> {
    /// The next token and the byte at which it begins.
    fn next(&mut self) -> (Place<'t>, Token<'t>) {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        let start = self.at + (rest.len() - trimmed.len());
        let (token, length) = if trimmed.is_empty() {
            (Token::End, 0)
        } else if trimmed.starts_with("!=") {
            (Token::NotEqual, 2)
        } else if trimmed.starts_with("==") {
            (Token::Equal, 2)
        } else {
            match trimmed.as_bytes()[0] {
                b',' => (Token::Comma, 1),
                b'(' => (Token::Open, 1),
                b')' => (Token::Close, 1),
                b'!' => (Token::Not, 1),
                b'=' => (Token::Equal, 1),
                _ => {
                    let ends = |c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '!' | '=');
                    let word = &trimmed[..trimmed.find(ends).unwrap_or(trimmed.len())];
                    (Token::Word(word), word.len())
                }
            }
        };
        self.at = start + length;
        (Place { text: self.text, byte: start }, token)
    }

    fn peek(self) -> (Place<'t>, Token<'t>) {
        let mut ahead = self;
        ahead.next()
    }
}

/// Where a token begins.
#[derive(Clone, Copy, Debug)]
struct Place<'t> {
    text: &'t str,
    byte: usize,
}

impl Place<'_> {
    /// The position that people count: characters from 1.
    fn character(self) -> usize {
        self.text[..self.byte].chars().count() + 1
    }
}

struct Parser<'t> {
    rest: Tokens<'t>,
}

impl Parser<'_> {
    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.rest.peek().1 == Token::Not {
            self.rest.next();
            return Ok(Requirement::new(self.key()?, Operator::DoesNotExist, NO_VALUES));
        }
        let key = self.key()?;
        let (at, token) = self.rest.peek();
        let operator = match token {
            Token::Comma | Token::End => return Ok(Requirement::new(key, Operator::Exists, NO_VALUES)),
            Token::Equal | Token::Word("in") => Operator::In,
            Token::NotEqual | Token::Word("notin") => Operator::NotIn,
            Token::Word(_) | Token::Open | Token::Close | Token::Not => {
                return Err(unexpected(at, "`=`, `!=`, `in`, `notin` or `,`", token));
            }
        };
        self.rest.next();
        let values = if matches!(token, Token::Word(_)) { self.values()? } else { vec![self.value()?] };
        Ok(Requirement::new(key, operator, values))
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        match self.rest.next() {
            (at, Token::Word(key)) => match key_fault(key) {
                None => Ok(key.to_owned()),
                Some(rule) => Err(SelectorError::Key { at: at.character(), key: key.to_owned(), rule }),
            },
            (at, found) => Err(unexpected(at, "a label key", found)),
        }
    }

    /// One value, which may be empty: `a=` asks for the empty value.
    fn value(&mut self) -> Result<String, SelectorError> {
        let (at, Token::Word(value)) = self.rest.peek() else { return Ok(String::new()) };
        self.rest.next();
        match value_fault(value) {
            None => Ok(value.to_owned()),
            Some(rule) => Err(SelectorError::Value { at: at.character(), value: value.to_owned(), rule }),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let (at, open) = self.rest.next();
        if open != Token::Open {
            return Err(unexpected(at, "`(`", open));
        }
        if let (at, Token::Close) = self.rest.peek() {
            return Err(unexpected(at, "at least one value", Token::Close));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            match self.rest.next() {
                (_, Token::Comma) => {}
                (_, Token::Close) => return Ok(values),
                (at, found) => return Err(unexpected(at, "`,` or `)`", found)),
            }
        }
    }
}

fn unexpected(at: Place<'_>, wanted: &'static str, found: Token<'_>) -> SelectorError {
    let found = match found {
        Token::Word(word) => format!("`{word}`"),
        Token::Comma => "`,`".to_owned(),
        Token::Open => "`(`".to_owned(),
        Token::Close => "`)`".to_owned(),
        Token::Not => "`!`".to_owned(),
        Token::Equal => "`=`".to_owned(),
        Token::NotEqual => "`!=`".to_owned(),
        Token::End => "the end".to_owned(),
    };
    SelectorError::Unexpected { at: at.character(), wanted, found }
}
