//! The signals that the process listens to, heard by a thread of their own.
//!
//! The main thread reads files and opens disks, which can take longer than anybody wants to wait.
//! Whoever asks the process a second time to stop gets that, whatever the main thread is doing.

use std::process;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};

/// How long the process has after the second order to stop, to close its data folder and to write
/// the end of the access log. A third order, or the end of this time, ends it as it is.
const GRACE: Duration = Duration::from_secs(1);
/// How long writing the last line of the log may take: stderr may be a pipe that nobody reads.
const LAST_LINE: Duration = Duration::from_millis(100);
/// The exit code when it was not awaited that everything ends.
const CUT_SHORT: i32 = 1;

/// What the thread has heard.
pub(crate) struct Signals {
    /// How often the process was asked to stop.
    stops: watch::Receiver<u32>,
    hangup: Arc<Notify>,
}

impl Signals {
    /// Starts the thread. From here on neither SIGTERM nor SIGINT ends the process by itself.
    ///
    /// # Errors
    /// When the system does not let us handle signals or start a thread.
    pub fn listen() -> anyhow::Result<Self> {
        let (stop, stops) = watch::channel(0);
        let hangup = Arc::new(Notify::new());
        let told = Arc::clone(&hangup);
        let (tell, started) = channel();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || run(&stop, &told, &tell))
            .context("cannot start the thread that handles signals")?;
        let started = started.recv().context("cannot handle signals")?;
        started.context("cannot handle signals")?;
        Ok(Self { stops, hangup })
    }

    /// Waits until the process has been asked so many times to stop.
    pub async fn stop(&self, times: u32) {
        let is_enough = |count: &u32| *count >= times;
        if self.stops.clone().wait_for(is_enough).await.is_err() {
            // The thread ends with the process only.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for an order to reload. Several that came before it are one.
    pub async fn hangup(&self) {
        self.hangup.notified().await;
    }
}

/// Hears signals as long as the process lives.
fn run(stop: &watch::Sender<u32>, hangup: &Notify, started: &Sender<std::io::Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // Nobody waits for it when the start was given up.
            let _ = started.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        let signals = {
            let kinds = [
                SignalKind::terminate(),
                SignalKind::interrupt(),
                SignalKind::hangup(),
            ];
            let [terminate, interrupt, hung_up] = kinds.map(signal);
            terminate.and_then(|it| Ok((it, interrupt?, hung_up?)))
        };
        match signals {
            Ok(signals) => {
                let _ = started.send(Ok(()));
                hear(signals, stop, hangup).await;
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    });
}

async fn hear(
    (mut terminate, mut interrupt, mut hung_up): (Signal, Signal, Signal),
    stop: &watch::Sender<u32>,
    hangup: &Notify,
) {
    let mut end = None;
    loop {
        tokio::select! {
            _ = terminate.recv() => stop.send_modify(|count| *count += 1),
            _ = interrupt.recv() => stop.send_modify(|count| *count += 1),
            _ = hung_up.recv() => {
                hangup.notify_one();
                continue;
            }
            () = until(end) => end_process(),
        }
        match *stop.borrow() {
            0 | 1 => {}
            2 => end = Some(tokio::time::Instant::now() + GRACE),
            _ => end_process(),
        }
    }
}

/// Waits until a time; for ever when there is none.
async fn until(end: Option<tokio::time::Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Ends the process though the main thread does not.
fn end_process() -> ! {
    let (tell, written) = channel();
    let line = thread::Builder::new().spawn(move || {
        tracing::error!("stopped at once, while something was under way that does not stop");
        // Nobody waits any more when it took too long.
        let _ = tell.send(());
    });
    if line.is_ok() {
        // Whether it was written or took too long: the process ends.
        let _ = written.recv_timeout(LAST_LINE);
    }
    process::exit(CUT_SHORT)
}
