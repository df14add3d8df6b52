//! Taps: a [`Tap`] looks at the bytes of a body on their way, counts what is in them and says how
//! many may pass. [`Tapped`] puts one behind a source, so that [`super::pump`] moves the body.

use std::io;
use std::task::{Context, Poll, ready};

use net::http1::{End, TransferError};

use super::Source;

/// Looks at the bytes of a body on their way.
pub(crate) trait Tap {
    /// Why it lets nothing more pass.
    type Stop: Copy;

    /// Looks at the bytes behind those that have passed. Returns how many of them may pass, and
    /// why the rest may not. Bytes that may pass are shown only once; the rest is shown again.
    fn look(&mut self, bytes: &[u8]) -> (usize, Rest<Self::Stop>);

    /// Ready when the rest is worth another look, after [`Rest::Wait`].
    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

/// Why a tap does not let the rest of some bytes pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest<S> {
    /// There is none, or it can be judged only with what comes behind it.
    More,
    /// It may pass later.
    Wait,
    /// Neither the rest nor anything behind it passes.
    Stop(S),
}

/// What a tap has said so far; it outlives one poll.
#[derive(Debug)]
pub(crate) struct TapState<S> {
    /// How many bytes at the front have been looked at and may pass.
    ready: usize,
    /// Why nothing passes behind those.
    stop: Option<S>,
}

impl<S> Default for TapState<S> {
    fn default() -> Self {
        Self {
            ready: 0,
            stop: None,
        }
    }
}

impl<S: Copy> TapState<S> {
    /// Whether all that may pass has passed.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.ready == 0
    }

    /// Why the tap has stopped, once all that may pass has passed.
    #[inline]
    pub fn stopped(&self) -> Option<S> {
        self.stop.filter(|_| self.ready == 0)
    }

    /// Stops behind what may pass already.
    pub fn stop(&mut self, why: S) {
        self.stop.get_or_insert(why);
    }

    /// Has the tap look at these bytes unless it has done so. Pending while it waits.
    #[inline]
    fn poll_look(
        &mut self,
        context: &mut Context<'_>,
        tap: &mut impl Tap<Stop = S>,
        bytes: &[u8],
        is_end: bool,
    ) -> Poll<()> {
        while self.ready == 0 && self.stop.is_none() && !bytes.is_empty() {
            let (count, rest) = tap.look(bytes);
            self.ready = count.min(bytes.len());
            match rest {
                Rest::Stop(why) => self.stop(why),
                _ if count > 0 => {}
                Rest::Wait => ready!(tap.poll_wait(context)),
                // Nothing comes behind it that could be judged with it.
                Rest::More if is_end => self.ready = bytes.len(),
                Rest::More => break,
            }
        }
        Poll::Ready(())
    }
}

/// A source whose body goes past a tap. It ends where the body does, or where the tap stops it.
pub(crate) struct Tapped<'a, S, T: Tap> {
    source: &'a mut S,
    tap: &'a mut T,
    state: &'a mut TapState<T::Stop>,
}

impl<'a, S: Source, T: Tap> Tapped<'a, S, T> {
    pub fn new(source: &'a mut S, tap: &'a mut T, state: &'a mut TapState<T::Stop>) -> Self {
        Self { source, tap, state }
    }
}

impl<S: Source, T: Tap> Source for Tapped<'_, S, T> {
    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        let Self { source, tap, state } = self;
        let taken = source.poll_take(context, |context, bytes, end| {
            ready!(state.poll_look(context, *tap, bytes, end.is_end()));
            if state.ready == 0 && !bytes.is_empty() {
                return match state.stop {
                    Some(_) => Poll::Pending,
                    None => Poll::Ready(Ok(0)),
                };
            }
            let (part, end) = match bytes.get(..state.ready) {
                Some(part) if part.len() < bytes.len() => (part, End::More),
                _ => (bytes, end),
            };
            let used = ready!(take(context, part, end))?;
            state.ready -= used.min(state.ready);
            Poll::Ready(Ok(used))
        });
        match taken {
            // The source has bytes; nobody takes them any more.
            Poll::Pending if state.stopped().is_some() => Poll::Ready(Ok(())),
            taken => taken,
        }
    }

    #[inline]
    fn is_ended(&self) -> bool {
        self.state.stopped().is_some() || self.source.is_ended()
    }

    fn moved(&self) -> u64 {
        self.source.moved()
    }
}

#[cfg(test)]
pub(crate) mod tests;
