//! Chunked bodies: never a panic, and the same result however the input is cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use net::http1::{BodyDecoder, Framing, HeadLimits, Piece};

const LIMITS: HeadLimits = HeadLimits {
    bytes: 1024,
    fields: 16,
};

/// What came of a body.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The content, what would be relayed, and how much input was taken.
    Whole(Vec<u8>, Vec<u8>, usize),
    Truncated,
    Refused,
}

fn decode(input: &[u8], cuts: &[usize]) -> Outcome {
    let mut decoder = BodyDecoder::new(Framing::Chunked, LIMITS);
    let (mut content, mut relayed, mut taken, mut cut) = (Vec::new(), Vec::new(), 0, 0);
    let mut end = cuts.first().copied().unwrap_or(input.len());
    loop {
        let waiting = &input[taken..end];
        match decoder.next(waiting) {
            Err(_) => return Outcome::Refused,
            Ok(Piece::End) => return Outcome::Whole(content, relayed, taken),
            Ok(Piece::NeedMore) if end == input.len() => return Outcome::Truncated,
            Ok(Piece::NeedMore) => {
                cut += 1;
                end = cuts.get(cut).copied().unwrap_or(input.len()).max(end);
            }
            Ok(Piece::Skip(count)) => taken += count,
            Ok(Piece::Overhead(count) | Piece::Trailers(count)) => {
                relayed.extend_from_slice(&waiting[..count]);
                taken += count;
            }
            Ok(Piece::Data(count)) => {
                content.extend_from_slice(&waiting[..count]);
                relayed.extend_from_slice(&waiting[..count]);
                taken += count;
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((seed, input)) = bytes.split_first() else {
        return;
    };
    let whole = decode(input, &[]);
    let single: Vec<usize> = (0..=input.len()).collect();
    let some: Vec<usize> = (0..=input.len())
        .step_by(usize::from(*seed % 13) + 1)
        .collect();
    for cuts in [single, some] {
        let cut = decode(input, &cuts);
        match (&whole, &cut) {
            // A fault that a cut shows earlier or later is the same fault.
            (Outcome::Refused | Outcome::Truncated, Outcome::Refused | Outcome::Truncated) => {}
            _ => assert_eq!(whole, cut),
        }
    }
    // What is relayed means the same to whoever reads it next, and has no extensions left.
    if let Outcome::Whole(content, relayed, _) = &whole {
        let again = decode(relayed, &[]);
        assert_eq!(
            again,
            Outcome::Whole(content.clone(), relayed.clone(), relayed.len())
        );
    }
});
