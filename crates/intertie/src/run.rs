//! `intertie run`: start, reload, stop.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use component::plan::Plan;
use component::state::States;
use proxy::{AccessLog, Engine};
use tokio::signal::unix::{SignalKind, signal};

use crate::admin;
use crate::cli::RunArguments;
use crate::crew::Crew;
use crate::data;
use crate::load::{self, Files, Purpose, Sound};
use crate::logging::{self, AccessWriter, Log};
use crate::secrets::LoadedSecrets;
use crate::tls::LoadedTls;
use crate::watch::Watcher;

/// How often the crew is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Runs flows until told to stop.
///
/// # Errors
/// When the start fails. What is wrong with flow files is printed, and the exit code is 1.
pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let files = load::read(&arguments.paths)?;
    let states = Arc::new(States::default());
    let (loaded, problems) = load::load(&files, Purpose::Run, &LoadedTls::default(), &states);
    if !problems.is_empty() {
        eprint!("{}", problems.text(std::io::stderr().is_terminal()));
    }
    let Some(loaded) = loaded else {
        return Ok(ExitCode::FAILURE);
    };
    let log = logging::start(&loaded.flows.engine.log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(
        Application {
            arguments,
            log,
            files,
            tls: loaded.tls,
            states,
            secrets: loaded.secrets,
        }
        .run(loaded.flows),
    )
}

struct Application<'a> {
    arguments: &'a RunArguments,
    log: Log,
    /// The files as they were loaded last, with or without success.
    files: Files,
    /// The TLS that is used.
    tls: LoadedTls,
    /// What steps remember.
    states: Arc<States>,
    /// The secrets that are used.
    secrets: LoadedSecrets,
}

/// Why the main loop goes on.
enum Event {
    Stop,
    FilesChanged,
    /// It is time to look after workers, certificates and secrets.
    Tick,
}

impl Application<'_> {
    async fn run(mut self, loaded: flow::Loaded) -> anyhow::Result<ExitCode> {
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle signals")?;
        let mut watcher = match self.arguments.watch {
            true => Some(Watcher::new(&self.arguments.paths)?),
            false => None,
        };
        let (access, access_end) = AccessWriter::start(self.log.is_json())?;
        let access: Arc<dyn AccessLog> = Arc::new(access);
        let engine = Arc::new(Engine::new(Some(access)));
        let ready = Arc::new(AtomicBool::new(false));
        data::open(&self.arguments.data, &self.states).await?;
        let mut crew = Crew::start("worker", self.worker_count(), &engine)?;
        let (flows, (listeners, sources)) = (loaded.flows.len(), starters(&loaded.plan));
        crew.serve(loaded.plan, &self.tls.table).await?;
        let admin = admin::start(self.arguments.admin, &engine, &self.states, &ready).await?;
        ready.store(true, Ordering::Release);
        let workers = self.worker_count();
        tracing::info!(flows, listeners, sources, workers, "started");
        let mut tick = tokio::time::interval(LOOK_AFTER);
        loop {
            let event = tokio::select! {
                _ = terminate.recv() => Event::Stop,
                _ = interrupt.recv() => Event::Stop,
                () = Watcher::changed(&mut watcher) => Event::FilesChanged,
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Stop => break,
                Event::FilesChanged => self.reload(&mut crew).await,
                Event::Tick if self.tls.has_changed() => {
                    tracing::info!("a certificate or key has changed");
                    self.take_over(&mut crew).await;
                }
                Event::Tick if self.secrets.has_changed() => {
                    tracing::info!("a secret has changed");
                    self.take_over(&mut crew).await;
                }
                Event::Tick if crew.has_lost_one() => {
                    anyhow::bail!("a worker has ended unexpectedly");
                }
                Event::Tick => {}
            }
        }
        ready.store(false, Ordering::Release);
        tracing::info!(connections = engine.connection_count(), "stopping");
        tokio::select! {
            stopped = crew.stop() => stopped?,
            _ = terminate.recv() => tracing::warn!("stopped at once"),
            _ = interrupt.recv() => tracing::warn!("stopped at once"),
        }
        if let Some(admin) = admin {
            admin.stop().await?;
        }
        data::close(&self.states).await;
        drop(engine);
        access_end.wait();
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }

    fn worker_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.arguments.workers.map_or_else(cores, usize::from)
    }

    /// Takes changed files over. Whatever is wrong with them, what runs goes on.
    async fn reload(&mut self, crew: &mut Crew) {
        let files = match load::read(&self.arguments.paths) {
            Ok(files) if files == self.files => return,
            Ok(files) => files,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "not reloaded, the old flows stay"
                );
                return;
            }
        };
        self.files = files;
        self.take_over(crew).await;
    }

    /// Loads the files as they are, certificates and secrets too, and has the crew serve them.
    async fn take_over(&mut self, crew: &mut Crew) {
        let (loaded, problems) = load::load(&self.files, Purpose::Run, &self.tls, &self.states);
        if !problems.is_empty() {
            eprint!("{}", problems.text(std::io::stderr().is_terminal()));
        }
        let Some(Sound {
            flows: loaded,
            tls,
            secrets,
        }) = loaded
        else {
            tracing::error!(
                problems = problems.count(),
                "not reloaded, the old flows stay"
            );
            self.tls.look_again();
            self.secrets.look_again();
            return;
        };
        self.log.change(&loaded.engine.log);
        if let Err(error) = data::open(&self.arguments.data, &self.states).await {
            let error = format!("{error:#}");
            tracing::error!(error, "not reloaded, the old flows stay");
            return;
        }
        let (flows, (listeners, sources)) = (loaded.flows.len(), starters(&loaded.plan));
        match crew.serve(loaded.plan, &tls.table).await {
            Ok(()) => tracing::info!(flows, listeners, sources, "reloaded"),
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "not reloaded, the old flows stay"
                );
            }
        }
        self.tls = tls;
        self.secrets = secrets;
    }
}

/// What starts flows, for the log: addresses that are listened on, and how many sources there are.
fn starters(plan: &Plan) -> (Option<String>, Option<usize>) {
    let listeners = Some(plan.addresses()).filter(|it| !it.is_empty());
    (listeners, Some(plan.sources.len()).filter(|it| *it > 0))
}
