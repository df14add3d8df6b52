//! Room for answers in the budget of memory for bodies ([`message::memory`]). An answer of up to
//! [`memory::FREE`] bytes needs none. Of a larger one, its texts keep what is reserved.

use message::memory::{self, Exhausted, Reservation};
use message::{Fault, Retry};

use super::outcome::Answer;

/// Texts keep as much as this of what is reserved, or more.
const PART: u64 = 4096;

/// Looks whether there is any room, before something is taken out of the server that could not be
/// put back.
///
/// # Errors
/// `unavailable` when there is none. Nothing has been done.
pub(super) fn check() -> Result<(), Fault> {
    let least = memory::FREE as u64 + 1;
    let checked = memory::bodies().check(least);
    checked.map_err(|Exhausted| refused().with_retry(Retry::Yes))
}

/// Makes room for an answer. What has been taken out of the server is kept in any case.
///
/// # Errors
/// `unavailable` when there is none.
pub(super) fn hold(answer: Answer, is_taken: bool) -> Result<Answer, Fault> {
    let size = size_of(&answer);
    if size <= memory::FREE {
        return Ok(answer);
    }
    let budget = memory::bodies();
    let reserved = match is_taken {
        true => Ok(budget.take_anyway(size as u64)),
        false => budget.take(size as u64),
    };
    let mut reserved = reserved.map_err(|Exhausted| refused())?;
    let mut waiting = 0;
    Ok(keep(answer, &mut reserved, &mut waiting))
}

fn refused() -> Fault {
    memory::no_room("there is no memory left for the answer")
}

fn size_of(answer: &Answer) -> usize {
    match answer {
        Answer::Text(text) => text.len(),
        Answer::List(items) => items.iter().map(size_of).sum(),
        Answer::Nothing | Answer::Okay | Answer::Number(_) => 0,
    }
}

/// Gives texts what is reserved for them, and for those before them that were too small for a part
/// of their own.
fn keep(answer: Answer, reserved: &mut Reservation, waiting: &mut u64) -> Answer {
    match answer {
        Answer::Text(text) => {
            *waiting += text.len() as u64;
            if *waiting < PART {
                return Answer::Text(text);
            }
            let part = reserved.split(std::mem::take(waiting));
            Answer::Text(part.hold(text))
        }
        Answer::List(items) => {
            let items = items.into_iter();
            Answer::List(items.map(|it| keep(it, reserved, waiting)).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_texts_of_a_large_answer_keep_what_is_reserved() {
        let budget: &'static memory::Budget = Box::leak(Box::new(memory::Budget::new(1 << 20)));
        let sizes = [0, 1, 5000, 100, 4000, 70_000, 4095];
        let texts = sizes
            .iter()
            .map(|&size| Answer::Text(Bytes::from(vec![b'x'; size])));
        let answer = Answer::List(vec![Answer::Nothing, Answer::List(texts.collect())]);
        let size = size_of(&answer);
        assert_eq!(size, sizes.iter().sum::<usize>());
        let mut reserved = budget.take(size as u64).unwrap();
        let kept = keep(answer.clone(), &mut reserved, &mut 0);
        assert_eq!(kept, answer);
        drop(reserved);
        let used = budget.used();
        assert!(
            used >= (size as u64) - PART && used <= size as u64,
            "{used}"
        );
        drop(kept);
        assert_eq!(budget.used(), 0);
    }
}
