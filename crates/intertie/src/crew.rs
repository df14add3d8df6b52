//! The worker threads: started together, given plans together, stopped together.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use component::plan::Plan;
use component::trigger::ListenAddress;
use net::listen::{Binding, BoundSocket};
use proxy::{Command, Engine, OpenListener, TlsTable, Worker, WorkerSetup};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::machine;

/// How long a reload waits for the workers to take it over.
const APPLY_TIME: Duration = Duration::from_secs(10);

/// How much longer than `timeouts.drain` a worker may take to end. One that takes longer is stuck:
/// whoever waits for it would wait for ever.
const STOP_MARGIN: Duration = Duration::from_secs(10);

/// Worker threads that serve one plan.
pub(crate) struct Crew {
    members: Vec<Member>,
    addresses: Vec<ListenAddress>,
    /// How long the workers take at most to end, by the settings that they have.
    stop_time: Duration,
    /// How long they may take to serve another plan before nobody waits for it: [`APPLY_TIME`].
    apply_time: Duration,
}

/// A plan that can be served, with the sockets of addresses that are new.
pub(crate) struct PreparedPlan {
    plan: Arc<Plan>,
    tls: Arc<TlsTable>,
    addresses: Vec<ListenAddress>,
    bound: Vec<BoundAddress>,
    workers: usize,
}

/// A plan that can be served, with sockets of new addresses that listen. Nothing of it fails any
/// more while the workers live.
pub(crate) struct ListeningPlan {
    plan: Arc<Plan>,
    tls: Arc<TlsTable>,
    addresses: Vec<ListenAddress>,
    /// For each worker.
    opened: Vec<Vec<OpenListener>>,
}

impl PreparedPlan {
    /// Listens on the new addresses. What comes there waits until the plan is served.
    ///
    /// # Errors
    /// When another process has begun to listen on one of them meanwhile.
    pub fn listen(self) -> anyhow::Result<ListeningPlan> {
        let mut opened: Vec<Vec<OpenListener>> = (0..self.workers).map(|_| Vec::new()).collect();
        for BoundAddress { address, sockets } in self.bound {
            for (socket, opened) in sockets.into_iter().zip(&mut opened) {
                let socket = socket.listen();
                opened.push(OpenListener {
                    socket: socket.with_context(|| format!("cannot listen on {address}"))?,
                    address: address.clone(),
                });
            }
        }
        Ok(ListeningPlan {
            plan: self.plan,
            tls: self.tls,
            addresses: self.addresses,
            opened,
        })
    }
}

/// The sockets of an address, one for each worker. They refuse connections still.
struct BoundAddress {
    address: ListenAddress,
    sockets: Vec<BoundSocket>,
}

struct Member {
    commands: mpsc::UnboundedSender<Command>,
    /// Told when the thread has ended, and how.
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Crew {
    /// Starts `count` workers. They serve nothing yet.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(name: &str, count: usize, engine: &Arc<Engine>) -> anyhow::Result<Self> {
        let stack = machine::stack(count);
        let mut members = Vec::new();
        for number in 0..count {
            let (commands, receiver) = mpsc::unbounded_channel();
            let (report_end, ended) = oneshot::channel();
            let setup = WorkerSetup {
                number,
                count,
                engine: Arc::clone(engine),
                commands: receiver,
            };
            thread::Builder::new()
                .name(format!("{name}-{number}"))
                .stack_size(stack)
                .spawn(move || {
                    expr::jq::set_stack(stack / 4 * 3);
                    // Nobody listens any more when the process is going down.
                    let _ = report_end.send(Worker::run(setup));
                })
                .with_context(|| machine::no_thread(stack))?;
            members.push(Member { commands, ended });
        }
        Ok(Self {
            members,
            addresses: Vec::new(),
            stop_time: STOP_MARGIN,
            apply_time: APPLY_TIME,
        })
    }

    /// Does everything for a plan that can fail, and nothing that anybody could notice: what is
    /// served stays as it is until the plan is [committed](Self::commit).
    ///
    /// # Errors
    /// When a new address cannot be listened on.
    pub fn prepare(&self, plan: Plan, tls: &Arc<TlsTable>) -> anyhow::Result<PreparedPlan> {
        let addresses: Vec<ListenAddress> = plan
            .listeners
            .iter()
            .map(|listener| listener.address.clone())
            .collect();
        let mut bound: Vec<BoundAddress> = Vec::new();
        for address in &addresses {
            if self.addresses.contains(address) {
                continue;
            }
            let new = bound.iter().map(|bound| &bound.address);
            let binding = Binding {
                host: address.host.as_deref(),
                port: address.port,
                count: self.members.len(),
                beside_ours: self
                    .addresses
                    .iter()
                    .chain(new)
                    .any(|it| it.port == address.port),
            };
            let sockets = binding.bind();
            bound.push(BoundAddress {
                sockets: sockets.with_context(|| format!("cannot listen on {address}"))?,
                address: address.clone(),
            });
        }
        Ok(PreparedPlan {
            plan: Arc::new(plan),
            tls: Arc::clone(tls),
            addresses,
            bound,
            workers: self.members.len(),
        })
    }

    /// Has all workers serve a plan that has been prepared and listens.
    ///
    /// # Errors
    /// When a worker has ended.
    pub async fn commit(&mut self, listening: ListeningPlan) -> anyhow::Result<()> {
        let ListeningPlan {
            plan,
            tls,
            addresses,
            opened,
        } = listening;
        // A worker that is stuck may still drain by the settings before.
        let stop_time = plan.settings.timeouts.drain.saturating_add(STOP_MARGIN);
        let (applied, mut all_applied) = mpsc::unbounded_channel();
        for (member, opened) in self.members.iter().zip(opened) {
            let (plan, tls) = (Arc::clone(&plan), Arc::clone(&tls));
            let applied = applied.clone();
            member
                .commands
                .send(Command::Serve {
                    plan,
                    tls,
                    opened,
                    applied,
                })
                .map_err(|_| anyhow::anyhow!("a worker has ended unexpectedly"))?;
        }
        drop(applied);
        let all = async {
            for _ in &self.members {
                let applied = all_applied.recv().await;
                applied.context("a worker has ended unexpectedly")?;
            }
            anyhow::Ok(())
        };
        // A worker that is stuck must not make the process deaf to signals: its order stands.
        match tokio::time::timeout(self.apply_time, all).await {
            Ok(applied) => {
                applied?;
                self.stop_time = stop_time;
            }
            Err(_) => {
                tracing::error!("a worker does not respond; it serves the new flows later");
                self.stop_time = self.stop_time.max(stop_time);
            }
        }
        self.addresses = addresses;
        Ok(())
    }

    /// Whether a worker has ended without being told to.
    pub fn has_lost_one(&mut self) -> bool {
        self.members
            .iter()
            .any(|member| member.commands.is_closed())
    }

    /// Has all workers drain, and waits until they have ended, each of them, but no longer than
    /// `timeouts.drain` and a margin.
    ///
    /// # Errors
    /// When one has failed or is stuck.
    pub async fn stop(self) -> anyhow::Result<()> {
        for member in &self.members {
            // A worker that is gone already needs no telling.
            let _ = member.commands.send(Command::Drain);
        }
        let deadline = Instant::now() + self.stop_time;
        let mut result = Ok(());
        for member in self.members {
            let ended = match timeout_at(deadline, member.ended).await {
                Ok(Ok(ended)) => ended.context("a worker has failed"),
                Ok(Err(_)) => Err(anyhow::anyhow!("a worker has panicked")),
                Err(_) => Err(anyhow::anyhow!("a worker is stuck and has not ended")),
            };
            result = result.and(ended);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_reload_does_not_wait_for_a_stuck_worker_whose_order_stands() {
        let (stuck, mut stuck_orders) = mpsc::unbounded_channel();
        let (commands, mut orders) = mpsc::unbounded_channel();
        let (_report_end, ended) = oneshot::channel();
        let (_report_stuck, stuck_ended) = oneshot::channel();
        let member = |commands, ended| Member { commands, ended };
        let mut crew = Crew {
            members: vec![member(stuck, stuck_ended), member(commands, ended)],
            addresses: Vec::new(),
            stop_time: Duration::ZERO,
            apply_time: Duration::from_millis(1),
        };
        let mut plan = Plan::default();
        plan.settings.timeouts.drain = Duration::from_secs(7);
        let tls = Arc::new(TlsTable::default());
        // Drain orders may not overtake it, and a second reload may come.
        for _ in 0..2 {
            let prepared = crew.prepare(plan.clone(), &tls).unwrap();
            block_on(crew.commit(prepared.listen().unwrap())).unwrap();
        }
        for orders in [&mut stuck_orders, &mut orders] {
            for _ in 0..2 {
                let order = orders.try_recv();
                assert!(matches!(order, Ok(Command::Serve { .. })));
            }
        }
        assert!(!crew.has_lost_one());
        // The stuck worker may drain by either plan.
        assert_eq!(crew.stop_time, Duration::from_secs(7) + STOP_MARGIN);
    }

    #[test]
    fn a_lost_worker_is_seen_and_the_others_are_waited_for() {
        let (lost, gone) = mpsc::unbounded_channel();
        let (commands, mut orders) = mpsc::unbounded_channel();
        let (lost_end, lost_ended) = oneshot::channel();
        let (report_end, ended) = oneshot::channel();
        let member = |commands, ended| Member { commands, ended };
        let mut crew = Crew {
            members: vec![member(lost, lost_ended), member(commands, ended)],
            addresses: Vec::new(),
            stop_time: Duration::from_secs(60),
            apply_time: APPLY_TIME,
        };
        assert!(!crew.has_lost_one());
        drop(gone);
        let failed = Err(io::Error::other(
            "the task `accept` of worker 0 has panicked",
        ));
        lost_end.send(failed).unwrap();
        assert!(crew.has_lost_one());
        let other = thread::spawn(move || {
            assert!(matches!(orders.blocking_recv(), Some(Command::Drain)));
            report_end.send(Ok(())).unwrap();
        });
        let error = block_on(crew.stop()).unwrap_err();
        assert!(
            format!("{error:#}").contains("`accept` of worker 0"),
            "{error:#}"
        );
        other.join().unwrap();
    }

    #[test]
    fn a_stuck_worker_is_not_waited_for_when_its_time_is_over() {
        let (commands, _orders) = mpsc::unbounded_channel();
        let (_report_end, ended) = oneshot::channel();
        let crew = Crew {
            members: vec![Member { commands, ended }],
            addresses: Vec::new(),
            stop_time: Duration::ZERO,
            apply_time: APPLY_TIME,
        };
        let error = block_on(crew.stop()).unwrap_err();
        assert!(format!("{error:#}").contains("stuck"), "{error:#}");
    }
}
