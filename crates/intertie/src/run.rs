//! `intertie run`: start, reload, stop.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use component::audit::{Audit, Changes, Event as AuditEvent, EventKind};
use component::plan::Plan;
use component::settings::Limits;
use component::state::States;
use flow::Fingerprints;
use proxy::{AccessLog, Engine};
use tokio::sync::mpsc;

use crate::admin::{self, AdminContext, AdminServer, ReloadRequest};
use crate::audit::{AuditStream, PreparedAudit};
use crate::cli::RunArguments;
use crate::crew::{Crew, ListeningPlan, PreparedPlan};
use crate::data;
use crate::load::{self, Files, Purpose, Sound};
use crate::logging::{self, AccessWriter, Log};
use crate::machine;
use crate::named_files::NamedFiles;
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
    let audit = AuditStream::new(Audit::of(&states));
    let named = NamedFiles::default();
    let noted = (&*states, &named);
    let (loaded, problems) = load::load(&files, Purpose::Run, &LoadedTls::default(), noted);
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
        named,
        tls: loaded.tls,
        states,
        secrets: loaded.secrets,
        quiet_until: Instant::now(),
        supervisor,
        descriptors,
        admin: None,
        audit,
        fingerprints: None,
    };
    let ended = runtime.block_on(application.run(loaded.flows, loaded.audit));
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
    /// What `seen` names.
    named: NamedFiles,
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
    admin: Option<AdminServer>,
    /// Who was refused, and who has changed what.
    audit: AuditStream,
    /// What the files say that are served, while there is an audit stream.
    fingerprints: Option<Fingerprints>,
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
    async fn run(
        mut self,
        loaded: flow::Loaded,
        audit: Option<PreparedAudit>,
    ) -> anyhow::Result<ExitCode> {
        let signals = Signals::listen()?;
        let mut watcher = match self.arguments.watch {
            true => Some(Watcher::new(&self.arguments.paths)?),
            false => None,
        };
        let (access, access_end) = AccessWriter::start(self.log.is_json())?;
        let access: Arc<dyn AccessLog> = Arc::new(access);
        let engine = Arc::new(Engine::new(Some(access)).with_audit(self.audit.audit()));
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
        let listening = crew.prepare(plan, &self.tls.table)?.listen()?;
        topics.serve();
        self.audit.gather(audit.as_ref());
        crew.commit(listening).await?;
        topics.commit().await;
        self.switch_audit(audit, "engine").await?;
        set_body_memory(&limits, body_max);
        let (subject, mut reloads) = AdminContext::new(&engine, &self.states, &ready);
        let settings = (&loaded.admin, &self.tls.table);
        self.admin = AdminServer::start(self.arguments.admin, subject, settings).await?;
        ready.store(true, Ordering::Release);
        let workers = self.worker_count();
        tracing::info!(flows, listeners, sources, workers, "started");
        if let Some(missing) = machine::descriptors_missing(self.descriptors, limits.connections) {
            tracing::warn!("{missing}");
        }
        self.supervisor
            .notify(State::Ready(&format!("Serving, flows: {flows}")));
        let upkeep = data::upkeep(&self.states);
        let asked = (&signals, &mut watcher, &mut reloads);
        let is_well = self.serve(&mut crew, asked, &engine).await;
        ready.store(false, Ordering::Release);
        self.supervisor.notify(State::Stopping);
        tracing::info!(connections = engine.connection_count(), "stopping");
        let ended = tokio::select! {
            ended = stop(crew, self.admin.take()) => Some(ended),
            () = signals.stop(2) => None,
        };
        drop(upkeep);
        // Before the data folder, in which a topic may be that it is written to.
        self.audit.close().await;
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
            if let Some(watcher) = watcher {
                watcher.add(self.named.folders());
            }
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
                    drop(self.reload(crew, Some("sighup")).await);
                }
                Event::Reload(request) => {
                    // Whoever has hung up is not told.
                    drop(request.send(self.reload(crew, Some("admin")).await));
                }
                Event::FilesChanged => drop(self.reload(crew, None).await),
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
    async fn reload(
        &mut self,
        crew: &mut Crew,
        asked_by: Option<&'static str>,
    ) -> Result<(), String> {
        let trigger = asked_by.unwrap_or("files");
        let files = match load::read(&self.arguments.paths) {
            Ok(files) if files == self.seen && !self.named.has_changed() && asked_by.is_none() => {
                return Ok(());
            }
            Ok(files) => files,
            Err(error) => {
                let refused = Refused::Failed(error);
                self.tell_refused(&refused, trigger);
                return Err(refused.reason());
            }
        };
        self.seen = files.clone();
        self.supervisor.notify(State::Reloading);
        let (status, result) = match self.take_over(crew, files, trigger).await {
            Ok(AdminPortState::Current) => ("Serving", Ok(())),
            Ok(AdminPortState::Outdated) => ("Serving", Err(ADMIN_OUTDATED.to_owned())),
            Err(refused) => {
                self.tell_refused(&refused, trigger);
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
        let trigger = if self.tls.has_changed() {
            tracing::info!("a certificate or key has changed");
            "certificate"
        } else if self.secrets.has_changed() {
            tracing::info!("a secret has changed");
            "secret"
        } else {
            return;
        };
        let (tls, secrets) = (self.tls.look(), self.secrets.look());
        let mut result = self.take_over(crew, self.seen.clone(), trigger).await;
        if let Err(refused) = &result
            && self.seen != self.served
        {
            self.tell_refused(refused, trigger);
            tracing::info!("the files that are served are loaded with what has changed");
            let named = std::mem::take(&mut self.named);
            result = self.take_over(crew, self.served.clone(), trigger).await;
            self.named = named;
        }
        match result {
            Ok(_) => {}
            Err(refused @ Refused::Problems(_)) => {
                self.tell_refused(&refused, trigger);
                self.tls.accept(tls);
                self.secrets.accept(secrets);
            }
            Err(refused @ Refused::Failed(_)) => {
                self.tell_refused(&refused, trigger);
                self.quiet_until = Instant::now() + TRY_AGAIN;
            }
        }
    }

    /// Loads files, certificates and secrets, and has the crew serve them. Everything that can fail
    /// comes first, so that a failure leaves no trace. Only an admin port whose worker has ended
    /// stays as it was.
    async fn take_over(
        &mut self,
        crew: &mut Crew,
        files: Files,
        trigger: &'static str,
    ) -> Result<AdminPortState, Refused> {
        let states = self.states.stage();
        self.named = NamedFiles::default();
        let noted = (&states, &self.named);
        let (loaded, problems) = load::load(&files, Purpose::Run, &self.tls, noted);
        if !problems.is_empty() {
            eprint!("{}", problems.text(std::io::stderr().is_terminal()));
        }
        let Some(Sound {
            flows: loaded,
            tls,
            secrets,
            audit,
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
        let (admin, listening) = match listen(admin, prepared) {
            Ok(listening) => listening,
            Err(error) => {
                topics.withdraw().await;
                return Err(Refused::Failed(error));
            }
        };
        topics.serve();
        if let Err(error) = crew.commit(listening).await {
            topics.withdraw().await;
            return Err(Refused::Failed(error));
        }
        topics.commit().await;
        let mut port_state = AdminPortState::Current;
        if let (Some(port), Some(listening)) = (&mut self.admin, admin)
            && let Err(error) = port.commit(listening).await
        {
            let error = format!("{error:#}");
            tracing::error!(error, "the admin port stays as it was");
            port_state = AdminPortState::Outdated;
        }
        set_body_memory(&limits, body_max);
        self.states.commit(states);
        self.log.change(&loaded.engine.log);
        (self.tls, self.secrets, self.served) = (tls, secrets, files);
        self.audit_reload(audit, trigger).await;
        tracing::info!(flows, listeners, sources, "reloaded");
        Ok(port_state)
    }

    /// Has the audit stream go where the files say.
    async fn switch_audit(
        &mut self,
        audit: Option<PreparedAudit>,
        reason: &'static str,
    ) -> anyhow::Result<()> {
        self.fingerprints = audit.as_ref().map(|it| it.fingerprints().clone());
        self.audit.switch(audit, reason).await
    }

    /// Tells the audit stream what a reload has changed, and has it go where the files say. A
    /// stream that ends is told before.
    async fn audit_reload(&mut self, audit: Option<PreparedAudit>, trigger: &'static str) {
        let now = audit.as_ref().map(|it| it.fingerprints());
        let events = reload_events(self.fingerprints.as_ref(), now, trigger);
        let (first, last) = match audit {
            Some(_) => (Vec::new(), events),
            None => (events, Vec::new()),
        };
        self.record(first);
        if let Err(error) = self.switch_audit(audit, "reload").await {
            tracing::error!(target: "audit", error = format!("{error:#}"), "no audit stream");
        }
        self.record(last);
    }

    fn record(&self, events: Vec<AuditEvent>) {
        for event in events {
            self.audit.audit().record(|| event);
        }
    }

    /// Logs why files are not served, and tells the audit stream.
    fn tell_refused(&self, refused: &Refused, trigger: &'static str) {
        tell_refused(refused);
        self.audit.audit().record(|| {
            let event = AuditEvent::failure(EventKind::ConfigReload, &refused.reason());
            event.with("trigger", trigger)
        });
    }
}

/// Listens on new addresses: the last that can fail.
fn listen(
    admin: Option<PreparedPlan>,
    prepared: PreparedPlan,
) -> anyhow::Result<(Option<ListeningPlan>, ListeningPlan)> {
    let admin = admin.map(AdminServer::listen).transpose()?;
    Ok((admin, prepared.listen()?))
}

/// Ends what workers and the admin port have under way.
async fn stop(crew: Crew, admin: Option<AdminServer>) -> anyhow::Result<()> {
    let stopped = crew.stop().await;
    let admin_stopped = match admin {
        Some(admin) => admin.stop().await,
        None => Ok(()),
    };
    stopped.and(admin_stopped)
}

/// What the audit stream is told about a reload that has changed what the files say.
fn reload_events(
    before: Option<&Fingerprints>,
    now: Option<&Fingerprints>,
    trigger: &'static str,
) -> Vec<AuditEvent> {
    let between = |of: fn(&Fingerprints) -> &BTreeMap<String, u64>| {
        let both = before.zip(now);
        let changes = both.map(|(before, now)| Changes::between(of(before), of(now)));
        changes.unwrap_or_default()
    };
    let reload = AuditEvent::success(EventKind::ConfigReload).with("trigger", trigger);
    let mut events = vec![reload.with_changes(&between(|it| &it.parts))];
    for (kind, changes) in [
        (EventKind::PlansChanged, between(|it| &it.plans)),
        (EventKind::AuthChanged, between(|it| &it.ways)),
    ] {
        if !changes.is_empty() {
            events.push(AuditEvent::success(kind).with_changes(&changes));
        }
    }
    events
}

/// What has become of the admin port where new flows are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdminPortState {
    Current,
    /// It could not be changed: its old address and rules hold.
    Outdated,
}

/// What whoever has asked for a reload is told then.
const ADMIN_OUTDATED: &str =
    "the new flows are served, but the admin port stays as it was; the log tells why";

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
