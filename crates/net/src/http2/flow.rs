//! Flow-control windows (RFC 9113, sections 5.2 and 6.9).

/// The largest window (RFC 9113, section 6.9.1).
const MOST: i64 = i32::MAX as i64;

/// What may still be sent. It falls below zero when the peer makes the initial window smaller
/// (RFC 9113, section 6.9.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    #[inline]
    pub(crate) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) {
        self.0 -= count as i64;
    }

    /// Changes the window; the answer is whether it is still one.
    #[inline]
    #[must_use]
    pub(crate) fn change(&mut self, by: i64) -> bool {
        self.0 += by;
        self.0 <= MOST
    }
}

/// What the peer may still send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveWindow {
    left: i64,
    /// What was consumed and not yet given back.
    owed: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self {
            left: i64::from(size),
            owed: 0,
        }
    }

    /// Takes what a frame carries; the answer is whether the peer was allowed to send it.
    #[inline]
    #[must_use]
    pub(crate) fn take(&mut self, count: usize) -> bool {
        self.left -= count as i64;
        self.left >= 0
    }

    /// What the peer may still send.
    pub(crate) fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(0)
    }

    /// Changes the window along with the initial window.
    pub(crate) fn change(&mut self, by: i64) {
        self.left += by;
    }

    /// Takes what was consumed. The answer is what to give back now, if that is worth a frame:
    /// half of the whole window `size`.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize, size: u32) -> Option<u32> {
        self.owed = self.owed.saturating_add(count as u32);
        if self.owed < (size / 2).max(1) {
            return None;
        }
        let owed = std::mem::take(&mut self.owed);
        self.left += i64::from(owed);
        Some(owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_may_be_negative_but_not_too_large() {
        let mut window = SendWindow::new(10);
        window.take(10);
        assert!(window.change(-10));
        assert_eq!(window.size(), 0);
        assert!(window.change(15));
        assert_eq!(window.size(), 5);
        assert!(window.change(i64::from(i32::MAX) - 5));
        assert!(!window.change(1));
    }

    #[test]
    fn what_is_consumed_comes_back_in_halves() {
        let mut window = ReceiveWindow::new(10);
        assert!(window.take(10));
        assert_eq!(window.consume(4, 10), None);
        assert_eq!(window.consume(3, 10), Some(7));
        assert!(window.take(7));
        assert!(!window.take(1));
    }
}
