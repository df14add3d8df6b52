//! `intertie run`: start, reload, stop.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use component::plan::Plan;
use component::settings::Limits;
use component::state::States;
use proxy::{AccessLog, Engine};
use tokio::sync::mpsc;

use crate::admin::{self, AdminPort, ReloadRequest, Subject};
use crate::cli::RunArguments;
use crate::crew::Crew;
use crate::data;
use crate::load::{self, Files, Purpose, Sound};
use crate::logging::{self, AccessWriter, Log};
use crate::machine;
use crate::secrets::LoadedSecrets;
use crate::signals::Signals;
use crate::supervisor::{State, Supervisor};
use crate::tls::LoadedTls;
use crate::watch::Watcher;

/// How often the crew is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// How long closing the data folder may take: one `fsync` of what is under way.
const CLOSE_TIME: Duration = Duration::from_secs(30);

/// How long after a failure changed certificates and secrets are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(30);

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
    let descriptors = machine::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let supervisor = Supervisor::from_environment()
        .context("NOTIFY_SOCKET names a socket that cannot be written to")?;
    let application = Application {
        arguments,
        log,
        seen: files.clone(),
        served: files,
        tls: loaded.tls,
        states,
        secrets: loaded.secrets,
        quiet_until: Instant::now(),
        supervisor,
        descriptors,
        admin: None,
    };
    let ended = runtime.block_on(application.run(loaded.flows));
    // A thread that waits for a disk or a name server must not keep the process.
    runtime.shutdown_background();
    ended
}

struct Application<'a> {
    arguments: &'a RunArguments,
    log: Log,
    /// The files as they were read last, whether they could be served or not.
    seen: Files,
    /// The files that are served. While `seen` has a problem, a renewed certificate is served with
    /// these.
    served: Files,
    /// The TLS that is used.
    tls: LoadedTls,
    /// What steps remember.
    states: Arc<States>,
    /// The secrets that are used.
    secrets: LoadedSecrets,
    /// Until then changed certificates and secrets are not looked for: serving the last ones has
    /// failed, and it is soon enough to try again then.
    quiet_until: Instant,
    /// Who has started the process and wants to know how it is.
    supervisor: Supervisor,
    /// How many files the process may open, where that is limited.
    descriptors: Option<u64>,
    /// The admin port, unless it is off.
    admin: Option<AdminPort>,
}

/// Why the main loop goes on.
enum Event {
    Stop,
    Hangup,
    /// Somebody wants the files loaded again, and waits for how that ends.
    Reload(ReloadRequest),
    FilesChanged,
    /// It is time to look after workers, certificates and secrets.
    Tick,
}

/// Why files are not served.
enum Refused {
    /// Something is wrong with them: so many problems, which have been printed.
    Problems(usize),
    /// What they need cannot be had now.
    Failed(anyhow::Error),
}

impl Application<'_> {
    async fn run(mut self, loaded: flow::Loaded) -> anyhow::Result<ExitCode> {
        let signals = Signals::listen()?;
        let mut watcher = match self.arguments.watch {
            true => Some(Watcher::new(&self.arguments.paths)?),
            false => None,
        };
        let (access, access_end) = AccessWriter::start(self.log.is_json())?;
        let access: Arc<dyn AccessLog> = Arc::new(access);
        let engine = Arc::new(Engine::new(Some(access)));
        let ready = Arc::new(AtomicBool::new(false));
        let mut crew = Crew::start("worker", self.worker_count(), &engine)?;
        // Whoever keeps a flow keeps its connections, which shall end when a reload changes them.
        let (plan, flows) = (loaded.plan, loaded.flows.len());
        drop(loaded.flows);
        let (listeners, sources) = starters(&plan);
        let (limits, body_max) = (plan.settings.limits, plan.body_max());
        // The folder first: a second engine by mistake is told about the first, not about its port.
        if self.arguments.accept_data_loss {
            data::accept_loss(&self.arguments.data)?;
        }
        let topics = data::open(&self.arguments.data, &self.states).await?;
        let prepared = crew.prepare(plan, &self.tls.table)?;
        topics.serve();
        crew.commit(prepared).await?;
        topics.commit().await;
        set_body_memory(&limits, body_max);
        let (subject, mut reloads) = Subject::new(&engine, &self.states, &ready);
        let settings = (&loaded.admin, &self.tls.table);
        self.admin = AdminPort::start(self.arguments.admin, subject, settings).await?;
        ready.store(true, Ordering::Release);
        let workers = self.worker_count();
        tracing::info!(flows, listeners, sources, workers, "started");
        if let Some(missing) = machine::descriptors_missing(self.descriptors, limits.connections) {
            tracing::warn!("{missing}");
        }
        self.supervisor
            .notify(State::Ready(&format!("Serving, flows: {flows}")));
        let keeping = tokio::spawn(data::limits::keep(Arc::clone(&self.states)));
        let tidying = tokio::spawn(data::denied::tidy(Arc::clone(&self.states)));
        let asked = (&signals, &mut watcher, &mut reloads);
        let is_well = self.serve(&mut crew, asked, &engine).await;
        ready.store(false, Ordering::Release);
        self.supervisor.notify(State::Stopping);
        tracing::info!(connections = engine.connection_count(), "stopping");
        let ended = async {
            let stopped = crew.stop().await;
            let admin_stopped = match self.admin.take() {
                Some(admin) => admin.stop().await,
                None => Ok(()),
            };
            stopped.and(admin_stopped)
        };
        let ended = tokio::select! {
            ended = ended => Some(ended),
            () = signals.stop(2) => None,
        };
        keeping.abort();
        tidying.abort();
        let closed = tokio::time::timeout(CLOSE_TIME, data::close(&self.states)).await;
        let closed = closed.context("the disk has not taken in time what waited to be written");
        // Workers that have not ended keep the access log open: its end would not come.
        let ended = ended.context("stopped at once, as asked a second time")?;
        drop(engine);
        access_end.wait();
        ended?;
        closed?;
        anyhow::ensure!(is_well, "a worker has ended unexpectedly");
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }

    /// Takes changes over until the process is asked to stop. False when a worker has ended: the
    /// others end what is under way, and whoever supervises the process starts it again.
    async fn serve(
        &mut self,
        crew: &mut Crew,
        (signals, watcher, reloads): (
            &Signals,
            &mut Option<Watcher>,
            &mut mpsc::Receiver<ReloadRequest>,
        ),
        engine: &Engine,
    ) -> bool {
        let mut tick = tokio::time::interval(self.supervisor.look_after(LOOK_AFTER));
        loop {
            let event = tokio::select! {
                () = signals.stop(1) => Event::Stop,
                () = signals.hangup() => Event::Hangup,
                Some(request) = reloads.recv() => Event::Reload(request),
                () = Watcher::changed(watcher) => Event::FilesChanged,
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Stop => return true,
                Event::Hangup => {
                    tracing::info!("asked to reload by SIGHUP");
                    drop(self.reload(crew, true).await);
                }
                Event::Reload(request) => {
                    // Whoever has hung up is not told.
                    drop(request.send(self.reload(crew, true).await));
                }
                Event::FilesChanged => drop(self.reload(crew, false).await),
                Event::Tick if crew.has_lost_one() => {
                    tracing::error!("a worker has ended unexpectedly");
                    return false;
                }
                Event::Tick => {
                    self.supervisor
                        .keep_alive(|| engine.stuck_workers(admin::STUCK).is_empty());
                    self.renew(crew).await;
                }
            }
        }
    }

    fn worker_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.arguments.workers.map_or_else(cores, usize::from)
    }

    /// Takes the files over as they are now; those that have not changed since the last time only
    /// when somebody has asked. Whatever is wrong with them, what runs goes on.
    ///
    /// # Errors
    /// Why they are not served, for whoever has asked. The log has more.
    async fn reload(&mut self, crew: &mut Crew, is_asked: bool) -> Result<(), String> {
        let files = match load::read(&self.arguments.paths) {
            Ok(files) if files == self.seen && !is_asked => return Ok(()),
            Ok(files) => files,
            Err(error) => {
                let refused = Refused::Failed(error);
                tell_refused(&refused);
                return Err(refused.reason());
            }
        };
        self.seen = files.clone();
        self.supervisor.notify(State::Reloading);
        let (status, result) = match self.take_over(crew, files).await {
            Ok(()) => ("Serving", Ok(())),
            Err(refused) => {
                tell_refused(&refused);
                let status = "Serving the old flows: the files could not be reloaded";
                (status, Err(refused.reason()))
            }
        };
        self.supervisor.notify(State::Ready(status));
        result
    }

    /// Serves certificates, keys and secrets that have changed: with the files as they were read
    /// last, or, when something is wrong with these, with the files that are served. A renewed
    /// certificate does not wait for the end of an edit.
    async fn renew(&mut self, crew: &mut Crew) {
        if Instant::now() < self.quiet_until {
            return;
        }
        if self.tls.has_changed() {
            tracing::info!("a certificate or key has changed");
        } else if self.secrets.has_changed() {
            tracing::info!("a secret has changed");
        } else {
            return;
        }
        let (tls, secrets) = (self.tls.look(), self.secrets.look());
        let mut result = self.take_over(crew, self.seen.clone()).await;
        if let Err(refused) = &result
            && self.seen != self.served
        {
            tell_refused(refused);
            tracing::info!("the files that are served are loaded with what has changed");
            result = self.take_over(crew, self.served.clone()).await;
        }
        match result {
            Ok(()) => {}
            Err(refused @ Refused::Problems(_)) => {
                tell_refused(&refused);
                self.tls.accept(tls);
                self.secrets.accept(secrets);
            }
            Err(refused @ Refused::Failed(_)) => {
                tell_refused(&refused);
                self.quiet_until = Instant::now() + TRY_AGAIN;
            }
        }
    }

    /// Loads files, certificates and secrets, and has the crew serve them. Everything that can fail
    /// comes first, so that a failure leaves no trace.
    async fn take_over(&mut self, crew: &mut Crew, files: Files) -> Result<(), Refused> {
        let states = self.states.stage();
        let (loaded, problems) = load::load(&files, Purpose::Run, &self.tls, &states);
        if !problems.is_empty() {
            eprint!("{}", problems.text(std::io::stderr().is_terminal()));
        }
        let Some(Sound {
            flows: loaded,
            tls,
            secrets,
        }) = loaded
        else {
            return Err(Refused::Problems(problems.count()));
        };
        let (flows, (listeners, sources)) = (loaded.flows.len(), starters(&loaded.plan));
        let (limits, body_max) = (loaded.plan.settings.limits, loaded.plan.body_max());
        let prepared = crew.prepare(loaded.plan, &tls.table);
        let prepared = prepared.map_err(Refused::Failed)?;
        let settings = (&loaded.admin, &tls.table);
        let admin = self.admin.as_ref().map(|admin| admin.prepare(settings));
        let admin = admin.transpose().map_err(Refused::Failed)?;
        let topics = data::open(&self.arguments.data, &states).await;
        let topics = topics.map_err(Refused::Failed)?;
        topics.serve();
        if let Err(error) = crew.commit(prepared).await {
            topics.withdraw().await;
            return Err(Refused::Failed(error));
        }
        topics.commit().await;
        if let (Some(port), Some(prepared)) = (&mut self.admin, admin)
            && let Err(error) = port.commit(prepared).await
        {
            let error = format!("{error:#}");
            tracing::error!(error, "the admin port stays as it was");
        }
        set_body_memory(&limits, body_max);
        self.states.commit(states);
        self.log.change(&loaded.engine.log);
        (self.tls, self.secrets, self.served) = (tls, secrets, files);
        tracing::info!(flows, listeners, sources, "reloaded");
        Ok(())
    }
}

/// Sets the budget for bodies, and warns when the machine has too little memory for the largest one
/// that a flow takes. A budget of the settings has been compared with it before.
fn set_body_memory(limits: &Limits, body_max: u64) {
    let limit = limits.body_memory.unwrap_or_else(machine::body_memory);
    if limit < body_max {
        tracing::warn!(
            limit,
            body_max,
            "bodies above {limit} bytes are refused with 413: limits.body_memory is half of the \
             memory, and a flow takes bodies of up to {body_max} bytes"
        );
    }
    message::memory::bodies().set_limit(limit);
}

impl Refused {
    /// The reason without paths and addresses, which stand in the log.
    fn reason(&self) -> String {
        match self {
            Self::Problems(1) => "the files have a problem, which the log tells".to_owned(),
            Self::Problems(count) => {
                format!("the files have {count} problems, which the log tells")
            }
            Self::Failed(_) => "the files cannot be served now; the log tells why".to_owned(),
        }
    }
}

/// Logs why files are not served.
fn tell_refused(refused: &Refused) {
    const MESSAGE: &str = "not reloaded, the old flows stay";
    match refused {
        Refused::Problems(problems) => tracing::error!(problems, "{MESSAGE}"),
        Refused::Failed(error) => tracing::error!(error = format!("{error:#}"), "{MESSAGE}"),
    }
}

/// What starts flows, for the log: addresses that are listened on, and how many sources there are.
fn starters(plan: &Plan) -> (Option<String>, Option<usize>) {
    let listeners = Some(plan.addresses()).filter(|it| !it.is_empty());
    (listeners, Some(plan.sources.len()).filter(|it| *it > 0))
}
