//! The fenced blocks of Markdown pages.

/// A fenced block of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkdownBlock {
    /// The line of the page on which it begins, from 1.
    pub line: usize,
    /// What stands behind the three backquotes.
    pub language: String,
    /// Its lines, without the indentation of the fence.
    pub text: String,
}

/// The blocks of a page, in order. A block that never ends is left out.
pub fn markdown_blocks(page: &str) -> Vec<MarkdownBlock> {
    let (mut blocks, mut open) = (Vec::new(), None::<(usize, MarkdownBlock)>);
    for (number, line) in page.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let block = MarkdownBlock {
                    line: number + 1,
                    language: language.to_owned(),
                    text: String::new(),
                };
                open = Some((indent, block));
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (None, Some((indent, block))) => {
                block.text.push_str(line.get(*indent..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_line_and_language() {
        let page = "# A\n```yaml\na: 1\n\nb: 2\n```\ntext\n- x:\n\n  ```sh\n  ls\n  ```\n";
        let block = |line, language: &str, text: &str| MarkdownBlock {
            line,
            language: language.to_owned(),
            text: text.to_owned(),
        };
        let expected = [block(2, "yaml", "a: 1\n\nb: 2\n"), block(10, "sh", "ls\n")];
        assert_eq!(markdown_blocks(page), expected);
    }
}
