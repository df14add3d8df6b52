//! What an endpoint has been offered and not been sent, as far as it is held in memory. What is not
//! here is read from the log again.

use std::collections::VecDeque;
use std::rc::Rc;

use super::super::machine::Span;
use super::super::view::Shown;

/// How many bytes of events are held for an endpoint.
const HELD_MAX: usize = 256 << 10;

/// Events of an endpoint, in the order in which it was offered them.
#[derive(Default)]
pub(super) struct Held {
    events: VecDeque<Rc<Shown>>,
    bytes: usize,
}

impl Held {
    /// Holds an event, as long as there is room. Those on which an expression has failed count too:
    /// they hold their documents until they are dead letters.
    pub fn push(&mut self, shown: &Rc<Shown>) {
        let bytes = shown.size();
        if self.bytes + bytes <= HELD_MAX || self.events.is_empty() {
            self.bytes += bytes;
            self.events.push_back(Rc::clone(shown));
        }
    }

    /// Takes the events of a span that are here, each once: fewer than the span has when some are
    /// not here.
    pub fn take(&mut self, span: Span) -> Vec<Rc<Shown>> {
        let room = span.count.min(self.events.len());
        let (mut taken, mut next) = (Vec::with_capacity(room), span.first);
        while taken.len() < span.count {
            let is_next = |it: &Rc<Shown>| (next..=span.last).contains(&it.id.sequence);
            let at = self.events.iter().position(is_next);
            let Some(one) = at.and_then(|at| self.events.remove(at)) else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(one.size());
            next = one.id.sequence + 1;
            taken.push(one);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(numbers: &[u64]) -> Held {
        let mut held = Held::default();
        for number in numbers {
            held.push(&Shown::of_size(*number, 10));
        }
        held
    }

    fn taken(held: &mut Held, (first, last, count): (u64, u64, usize)) -> Vec<u64> {
        let span = Span {
            first,
            last,
            count,
            is_batch: true,
        };
        held.take(span).iter().map(|it| it.id.sequence).collect()
    }

    #[test]
    fn a_span_takes_its_own_events_and_leaves_the_others() {
        let mut held = held(&[1, 2, 4, 5]);
        assert_eq!(taken(&mut held, (2, 4, 2)), [2, 4]);
        assert_eq!(taken(&mut held, (2, 4, 2)), [0; 0]);
        assert_eq!(taken(&mut held, (1, 9, 3)), [1, 5], "as many as are here");
        assert!(held.events.is_empty() && held.bytes == 0);
    }

    #[test]
    fn no_event_stands_for_another_one_of_a_span() {
        let mut held = held(&[1, 2, 3, 1, 2, 3]);
        assert_eq!(taken(&mut held, (1, 4, 4)), [1, 2, 3]);
    }

    #[test]
    fn bytes_are_bounded_and_one_event_is_always_held() {
        let mut held = Held::default();
        held.push(&Shown::of_size(1, 2 * HELD_MAX));
        held.push(&Shown::of_size(2, 10));
        assert_eq!(taken(&mut held, (1, 2, 2)), [1]);
        held.push(&Shown::of_size(3, HELD_MAX));
        held.push(&Shown::of_size(4, 1));
        assert_eq!(taken(&mut held, (3, 4, 2)), [3]);
    }

    #[test]
    fn events_that_an_expression_has_failed_on_take_room_too() {
        let mut held = Held::default();
        for number in 1..=4 {
            held.push(&Shown::failed_of_size(number, HELD_MAX / 3));
        }
        assert_eq!(held.events.len(), 2);
        assert_eq!(taken(&mut held, (1, 1, 1)), [1]);
    }
}
