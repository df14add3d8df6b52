//! What HTTP/1.1 needs of a connection. Besides [`Connection`] only tests implement [`Transport`],
//! with peers that take and give as few bytes as a schedule says.

use std::io;
use std::task::{Context, Poll};

use crate::{Buffer, Connection};

/// Where bytes are written: the writing half of a [`Transport`].
pub trait Output {
    /// Writes some of these bytes, at least one. They are the output's from then on.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ready when nothing that was written waits here.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether [`Output::poll_write_vectored`] takes bytes from several places without a copy.
    fn is_write_vectored(&self) -> bool {
        false
    }

    /// Writes some of these bytes, those of the second slice behind all of the first: at least one.
    fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        [first, _]: [&[u8]; 2],
    ) -> Poll<io::Result<usize>> {
        self.poll_write(context, first)
    }

    /// How many bytes of TLS records the socket has taken. Together with what has been accepted it
    /// tells progress.
    fn records_taken(&self) -> u64 {
        0
    }
}

/// A byte stream in both directions, with a buffer for what has been read.
pub trait Transport: Output {
    /// What has been read and not been used.
    fn input(&self) -> &Buffer;

    /// The same, to use it up.
    fn input_mut(&mut self) -> &mut Buffer;

    /// Reads once into the input buffer. `Ok(0)` means that the other side has finished.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Whether nothing that was written waits here.
    fn is_flushed(&self) -> bool;
}

impl Output for Connection {
    #[inline]
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self, context, bytes)
    }

    #[inline]
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self, context)
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        Self::is_write_vectored(self)
    }

    #[inline]
    fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: [&[u8]; 2],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write_vectored(self, context, slices)
    }

    #[inline]
    fn records_taken(&self) -> u64 {
        Self::records_taken(self)
    }
}

impl Transport for Connection {
    #[inline]
    fn input(&self) -> &Buffer {
        &self.input
    }

    #[inline]
    fn input_mut(&mut self) -> &mut Buffer {
        &mut self.input
    }

    #[inline]
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Self::poll_fill(self, context)
    }

    #[inline]
    fn is_flushed(&self) -> bool {
        Self::is_flushed(self)
    }
}

/// Implements [`Output`] and [`Transport`] for pointers to a transport.
macro_rules! delegate {
    ($($pointer:ty),*) => {
        $(
            impl<T: Output> Output for $pointer {
                #[inline]
                fn poll_write(
                    &mut self,
                    context: &mut Context<'_>,
                    bytes: &[u8],
                ) -> Poll<io::Result<usize>> {
                    T::poll_write(self, context, bytes)
                }

                #[inline]
                fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                    T::poll_flush(self, context)
                }

                #[inline]
                fn is_write_vectored(&self) -> bool {
                    T::is_write_vectored(self)
                }

                #[inline]
                fn poll_write_vectored(
                    &mut self,
                    context: &mut Context<'_>,
                    slices: [&[u8]; 2],
                ) -> Poll<io::Result<usize>> {
                    T::poll_write_vectored(self, context, slices)
                }

                #[inline]
                fn records_taken(&self) -> u64 {
                    T::records_taken(self)
                }
            }

            impl<T: Transport> Transport for $pointer {
                #[inline]
                fn input(&self) -> &Buffer {
                    T::input(self)
                }

                #[inline]
                fn input_mut(&mut self) -> &mut Buffer {
                    T::input_mut(self)
                }

                #[inline]
                fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
                    T::poll_fill(self, context)
                }

                #[inline]
                fn is_flushed(&self) -> bool {
                    T::is_flushed(self)
                }
            }
        )*
    };
}

delegate!(Box<T>, &mut T);
