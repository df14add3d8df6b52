//! The path of a place in a JSON text. Only errors need it, so conversions keep no paths.

/// The path of the value or member at an offset: `$.lot.cars[1]`. The text may be broken behind
/// the offset.
pub(super) fn json_path(json: &[u8], offset: usize) -> String {
    let mut stack: Vec<Step> = Vec::new();
    let mut at = 0;
    while let Some(byte) = json.get(at).filter(|_| at <= offset) {
        match byte {
            b'{' => stack.push(Step::Member {
                key: None,
                awaits_key: true,
            }),
            b'[' => stack.push(Step::Entry(0)),
            b'}' | b']' if at < offset => drop(stack.pop()),
            b',' => match stack.last_mut() {
                Some(Step::Entry(index)) => *index += 1,
                Some(Step::Member { awaits_key, .. }) => *awaits_key = true,
                None => {}
            },
            b'"' => {
                let end = string_end(json, at);
                if let Some(Step::Member {
                    key,
                    awaits_key: awaits @ true,
                }) = stack.last_mut()
                {
                    *key = json.get(at + 1..end - 1).map(<[u8]>::to_vec);
                    *awaits = false;
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = "$".to_owned();
    for step in &stack {
        step.write(&mut path);
    }
    path
}

enum Step {
    Member {
        key: Option<Vec<u8>>,
        awaits_key: bool,
    },
    Entry(usize),
}

impl Step {
    fn write(&self, path: &mut String) {
        match self {
            Self::Entry(index) => path.push_str(&format!("[{index}]")),
            Self::Member { key: None, .. } => {}
            Self::Member { key: Some(key), .. } => {
                let key: String = String::from_utf8_lossy(key).chars().take(100).collect();
                let is_plain = !key.is_empty()
                    && key
                        .chars()
                        .all(|it| it.is_alphanumeric() || it == '_' || it == '-');
                if is_plain {
                    path.push('.');
                    path.push_str(&key);
                } else {
                    path.push_str(&format!("[\"{}\"]", key.escape_debug()));
                }
            }
        }
    }
}

/// Where the string that begins at an offset ends, its last quote included.
fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len().max(start + 2)
}
