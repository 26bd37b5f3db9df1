//! Splitting of a command line into words, like a shell.
//!
//! Owns: quotation marks and backslashes.
//! Must not touch: variables, pipes, globs. Compose runs no shell, so they have no meaning here.

/// A quotation mark without its closing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a quotation mark is opened and never closed")]
pub(crate) struct Unclosed;

/// The words of a command line.
pub(crate) fn split(text: &str) -> Result<Vec<String>, Unclosed> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => single(&mut chars, word.get_or_insert_default())?,
            '"' => double(&mut chars, word.get_or_insert_default())?,
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => word.get_or_insert_default().push('\\'),
            },
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), Unclosed> {
    loop {
        match chars.next().ok_or(Unclosed)? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

fn double(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), Unclosed> {
    loop {
        match chars.next().ok_or(Unclosed)? {
            '"' => return Ok(()),
            '\\' => match chars.next().ok_or(Unclosed)? {
                '\n' => {}
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Unclosed, split};

    #[test]
    fn words_are_split_as_a_shell_would() {
        assert_eq!(split("a  b\tc").unwrap(), ["a", "b", "c"]);
        assert_eq!(
            split(r#"sh -c 'echo "hi" $HOME' "a b"c \"d\" ''"#).unwrap(),
            ["sh", "-c", "echo \"hi\" $HOME", "a bc", "\"d\"", ""]
        );
        assert_eq!(split(r#""a\"b\n""#).unwrap(), ["a\"b\\n"]);
        assert_eq!(split("").unwrap(), Vec::<String>::new());
        assert_eq!(split("a 'b"), Err(Unclosed));
        assert_eq!(split("a \"b"), Err(Unclosed));
    }
}
