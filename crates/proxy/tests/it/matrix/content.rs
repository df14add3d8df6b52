//! Content that says whose it is at every byte.

/// The content of a request: its number again and again.
pub fn content(id: &str, length: usize) -> Vec<u8> {
    let unit = format!("{id}|");
    let mut content = unit.repeat(length / unit.len() + 1).into_bytes();
    content.truncate(length);
    content
}

/// The content of the reply to a request.
pub fn reply_content(id: &str, length: usize) -> Vec<u8> {
    content(&format!("re:{id}"), length)
}

/// Looks at the content of a request piece by piece.
pub struct Verifier {
    id: String,
    /// Some units in a row, to be compared with.
    sample: Vec<u8>,
    unit: usize,
    at: usize,
}

const STEP: usize = 16 * 1024;

impl Verifier {
    pub fn new(id: &str) -> Self {
        let unit = id.len() + 1;
        Self {
            id: id.to_owned(),
            sample: content(id, STEP + unit),
            unit,
            at: 0,
        }
    }

    /// Takes the next piece.
    pub fn take(&mut self, part: &[u8]) -> Result<(), String> {
        for piece in part.chunks(STEP) {
            let from = self.at % self.unit;
            if self.sample[from..from + piece.len()] != *piece {
                let wrong = String::from_utf8_lossy(&piece[..piece.len().min(120)]);
                let (id, at) = (&self.id, self.at);
                return Err(format!(
                    "other bytes within the body of {id} at {at}: {wrong:?}"
                ));
            }
            self.at += piece.len();
        }
        Ok(())
    }
}
