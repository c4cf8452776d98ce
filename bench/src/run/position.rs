//! The line on which a field of a JSON text stands, for messages about what it says.
//!
//! The text was parsed before, so that this walk only has to keep account of strings and brackets.
//! Where it does not find its way it gives up, and the message goes without a line.

/// The line, from 1, of the value at `path`: names and numbers between dots, as in
/// `environment.cpu` or `cells.3.state`.
pub(crate) fn line_of(text: &str, path: &str) -> Option<usize> {
    let mut walk = Walk {
        bytes: text.as_bytes(),
        at: 0,
    };
    for step in path.split('.') {
        walk.enter(step)?;
    }
    walk.skip_space();
    let before = walk.bytes.get(..walk.at)?;
    Some(before.iter().filter(|byte| **byte == b'\n').count() + 1)
}

struct Walk<'text> {
    bytes: &'text [u8],
    at: usize,
}

impl Walk<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Goes to the beginning of one member of the object or array that begins here.
    fn enter(&mut self, step: &str) -> Option<()> {
        self.skip_space();
        let is_object = match self.peek()? {
            b'{' => true,
            b'[' => false,
            _ => return None,
        };
        self.at += 1;
        for index in 0_usize.. {
            self.skip_space();
            let is_wanted = if is_object {
                let from = self.at;
                self.skip_string()?;
                let name = self.bytes.get(from + 1..self.at - 1)?;
                self.skip_space();
                if self.peek()? != b':' {
                    return None;
                }
                self.at += 1;
                name == step.as_bytes()
            } else {
                step.parse() == Ok(index)
            };
            self.skip_space();
            if is_wanted {
                return Some(());
            }
            self.skip_value()?;
            self.skip_space();
            if self.peek()? != b',' {
                return None;
            }
            self.at += 1;
        }
        None
    }

    fn skip_string(&mut self) -> Option<()> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }

    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.skip_string()?;
                    if depth == 0 {
                        return Some(());
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => return Some(()),
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Some(());
                    }
                }
                b',' if depth == 0 => return Some(()),
                _ => {}
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n  \"a\": \"x\\\"{,\",\n  \"b\": {\"c\": [1, {\"d\": 2}],\n    \"e\":\n    \
                        3},\n  \"f\": [[],\n    [4]]\n}\n";

    #[test]
    fn a_field_is_found_wherever_it_is() {
        for (path, line) in [
            ("a", Some(2)),
            ("b", Some(3)),
            ("b.c.1.d", Some(3)),
            ("b.e", Some(5)),
            ("f.1.0", Some(7)),
            ("g", None),
            ("a.b", None),
            ("f.2", None),
        ] {
            assert_eq!(line_of(TEXT, path), line, "{path}");
        }
    }

    #[test]
    fn a_text_that_ends_early_is_given_up() {
        for end in 0..TEXT.len() {
            let _ = line_of(&TEXT[..end], "b.c.1.d");
            let _ = line_of(&TEXT[..end], "f.1");
        }
    }
}
