//! How the threads that write are asked: a command, and an answer to wait for.

use batch_channel::Sender;
use tokio::sync::oneshot;

use crate::error::Refusal;

/// Where an answer goes.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, Refusal>>;

/// Asks a thread and waits for what it says; `Closed` when it has ended.
pub(crate) async fn ask<C: Send + 'static, T>(
    commands: &Sender<C>,
    command: impl FnOnce(Answer<T>) -> C,
) -> Result<T, Refusal> {
    let (answer, answered) = oneshot::channel();
    commands
        .send(command(answer))
        .map_err(|_| Refusal::Closed)?;
    answered.await.unwrap_or(Err(Refusal::Closed))
}

/// Has a thread end, and waits for it.
pub(crate) async fn close<C: Send + 'static>(
    commands: &Sender<C>,
    command: impl FnOnce(Option<oneshot::Sender<()>>) -> C,
) {
    let (answer, answered) = oneshot::channel();
    if commands.send(command(Some(answer))).is_ok() {
        // It is dropped unanswered when somebody else has closed it.
        let _ = answered.await;
    }
}
