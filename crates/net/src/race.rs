//! Connecting to one of several addresses: they race, as in RFC 8305 (Happy Eyeballs), so that one
//! that does not answer costs a quarter of a second and not the whole time.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long an address is ahead of the next one (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

type Attempt<T> = Pin<Box<dyn Future<Output = io::Result<T>>>>;

/// The first connection that is made. The others are dropped.
///
/// # Errors
/// That of the last attempt, or that there is no address.
pub(crate) async fn race<T, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>> + 'static,
{
    if let [address] = addresses.as_slice() {
        return connect(*address).await;
    }
    let mut addresses = addresses.into_iter();
    let mut attempts: Vec<Attempt<T>> = Vec::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut delay = pin!(sleep(Duration::ZERO));
    poll_fn(|context| {
        loop {
            let mut has_failed = false;
            let mut at = 0;
            while let Some(attempt) = attempts.get_mut(at) {
                match attempt.as_mut().poll(context) {
                    Poll::Ready(Ok(connected)) => return Poll::Ready(Ok(connected)),
                    Poll::Ready(Err(error)) => {
                        last = error;
                        has_failed = true;
                        drop(attempts.remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            // The next address is due after the delay, or as soon as an attempt has failed.
            if !has_failed && delay.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            match addresses.next() {
                Some(address) => attempts.push(Box::pin(connect(address))),
                None if attempts.is_empty() => {
                    let error = std::mem::replace(&mut last, io::ErrorKind::Other.into());
                    return Poll::Ready(Err(error));
                }
                None if has_failed => continue,
                None => return Poll::Pending,
            }
            delay.as_mut().reset(Instant::now() + ATTEMPT_DELAY);
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connects after so many milliseconds as the port's number says; odd ones fail then.
    async fn connect(address: SocketAddr) -> io::Result<u16> {
        let port = address.port();
        sleep(Duration::from_millis(port.into())).await;
        match port % 2 {
            0 => Ok(port),
            _ => Err(io::Error::other(port.to_string())),
        }
    }

    fn to(ports: &[u16]) -> Vec<SocketAddr> {
        let local = |port: &u16| SocketAddr::from(([127, 0, 0, 1], *port));
        ports.iter().map(local).collect()
    }

    async fn took(ports: &[u16]) -> (Result<u16, String>, u128) {
        let start = Instant::now();
        let result = race(to(ports), connect).await;
        let result = result.map_err(|error| error.to_string());
        (result, start.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_costs_the_delay() {
        assert_eq!(took(&[60_000, 20]).await, (Ok(20), 270));
        assert_eq!(took(&[60_000, 60_001, 20]).await, (Ok(20), 520));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_wins_when_it_answers_in_time() {
        assert_eq!(took(&[200, 10]).await, (Ok(200), 200));
        // The delay gives a head start, no more.
        assert_eq!(took(&[400, 10]).await, (Ok(10), 260));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_makes_the_next_begin_at_once() {
        assert_eq!(took(&[11, 20]).await, (Ok(20), 31));
        assert_eq!(took(&[11, 13]).await, (Err("13".to_owned()), 24));
        assert_eq!(took(&[301, 11]).await, (Err("301".to_owned()), 301));
        assert!(took(&[]).await.0.is_err());
    }
}
