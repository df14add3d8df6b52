//! Room for rows in the budget for bodies ([`message::memory`]). Rows are counted without touching
//! it until they are more than [`memory::FREE`] bytes. From there on the row with which a further
//! piece begins keeps what is reserved for the piece, by the name of its first column: names are
//! shared and counted as bytes, so the room is given back when that row is dropped.

use expr::{Value, value};
use message::memory::{self, Budget, Exhausted};

use crate::sql::error::{Class, SqlError};

/// Bytes that are reserved at a time.
const PIECE: u64 = 64 * 1024;

/// What is reserved for rows that become more and more.
pub(super) struct Room {
    budget: &'static Budget,
    /// How many bytes the rows take.
    used: u64,
    /// For how many there is room.
    covered: u64,
    /// How many of them rows keep reserved.
    reserved: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self::new(memory::bodies())
    }
}

impl Room {
    fn new(budget: &'static Budget) -> Self {
        Self {
            budget,
            used: 0,
            covered: memory::FREE as u64,
            reserved: 0,
        }
    }

    /// Makes room for a row of this size, which the row that is given back keeps.
    ///
    /// # Errors
    /// When there is none.
    pub fn hold(&mut self, row: Value, size: usize) -> Result<Value, SqlError> {
        let used = self.used + size as u64;
        if used > self.covered {
            return self.extend(row, used);
        }
        self.used = used;
        Ok(row)
    }

    #[cold]
    fn extend(&mut self, row: Value, used: u64) -> Result<Value, SqlError> {
        let covered = used.next_multiple_of(PIECE);
        let reservation = self.budget.take(covered - self.reserved);
        let reservation = reservation.map_err(|Exhausted| self.refusal(covered))?;
        let Some(members) = value::members(&row) else {
            return Ok(row);
        };
        let mut reservation = Some(reservation);
        let members = members.map(|(name, value)| {
            let name = name.as_bytes().to_vec();
            let name = match reservation.take() {
                Some(reservation) => Value::utf8_str(reservation.hold(name)),
                None => Value::utf8_str(name),
            };
            (name, value.clone())
        });
        let row = Value::obj(members.collect());
        (self.used, self.covered, self.reserved) = (used, covered, covered);
        Ok(row)
    }

    fn refusal(&self, needed: u64) -> SqlError {
        if self.budget.never_has(needed) {
            let limit = self.budget.limit();
            let message = format!("the rows take more than {limit} bytes (`limits.body_memory`)");
            return SqlError::new(Class::TooLarge, message);
        }
        let message = "there is no memory left for the rows: `limits.body_memory` is used up";
        SqlError::new(Class::NoRoom, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: i64) -> Value {
        value::object([
            ("id".to_owned(), value::integer(number)),
            ("b".to_owned(), value::text("x")),
        ])
    }

    fn budget(pieces: u64) -> &'static Budget {
        Box::leak(Box::new(Budget::new(pieces * PIECE)))
    }

    #[test]
    fn small_results_do_not_touch_the_budget() {
        let budget = budget(0);
        let mut room = Room::new(budget);
        for number in 0..64 {
            assert!(room.hold(row(number), 1024).is_ok());
        }
        assert_eq!((budget.used(), budget.refused()), (0, 0));
        assert_eq!(room.hold(row(0), 1).unwrap_err().class, Class::TooLarge);
    }

    #[test]
    fn rows_keep_their_room_until_they_are_dropped() {
        let budget = budget(64);
        for seed in 1..200_usize {
            let mut room = Room::new(budget);
            let (mut rows, mut sum) = (Vec::new(), 0);
            for number in 0..40 {
                let size = (seed * 7919 + number * 104_729 * seed) % 90_000;
                let Ok(held) = room.hold(row(number as i64), size) else {
                    break;
                };
                assert_eq!(held, row(number as i64));
                rows.push(held);
                sum += size as u64;
                let used = budget.used();
                assert!(used == 0 && sum <= PIECE || used >= sum && used < sum + PIECE);
            }
            let used = budget.used();
            assert!(used >= sum || sum <= PIECE);
            rows.truncate(seed % 40);
            assert!(budget.used() <= used);
            drop(rows);
            assert_eq!(budget.used(), 0, "{seed}");
        }
    }

    #[test]
    fn without_room_rows_are_refused_and_what_is_held_stays() {
        let budget = budget(4);
        let others = budget.take(3 * PIECE).unwrap();
        let mut room = Room::new(budget);
        let first = room.hold(row(1), 1000).unwrap();
        let refused = room.hold(row(2), 100_000).unwrap_err();
        assert_eq!((refused.class, budget.used()), (Class::NoRoom, 3 * PIECE));
        drop(others);
        let second = room.hold(row(2), 100_000).unwrap();
        assert_eq!(budget.used(), 2 * PIECE);
        drop((first, second));
        assert_eq!(budget.used(), 0);
    }
}
