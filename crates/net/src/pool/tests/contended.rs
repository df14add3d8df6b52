//! Fewer connections than workers, and clients of every worker that send one request after the
//! other, in simulated time: how often connections are made, and how long requests wait.

use super::*;

/// One step of the simulated time.
const TICK: Duration = Duration::from_micros(250);
/// For how long each load runs.
const TIME: Duration = Duration::from_secs(5);
const WORKERS: usize = 2;
const STREAMS_MAX: usize = 100;

/// What is asked of the pools.
#[derive(Clone, Copy, Debug)]
struct Load {
    seed: u64,
    speaks_h2: bool,
    limit: usize,
    /// Of each worker.
    clients: [usize; WORKERS],
    /// For how many ticks they rest at most between a reply and the next request.
    think: [u32; WORKERS],
    /// How long making a connection takes.
    connect: Duration,
    /// How long a reply takes at most.
    reply: Duration,
}

/// How it went.
#[derive(Debug, Default)]
struct Tally {
    connects: usize,
    served: [usize; WORKERS],
    longest: Duration,
    failed: usize,
    /// Streams that were open when their connection was closed.
    cut: usize,
}

/// One worker's clients.
struct Clients {
    own: Worker,
    /// When each of them sends its next request.
    thinking: Vec<Instant>,
    waiting: BTreeMap<u64, Instant>,
    /// Exchanges and when they end.
    lent: Vec<(Instant, Lent)>,
    connects: Vec<(Instant, Connect)>,
}

struct Contest {
    load: Load,
    random: Rng,
    now: Instant,
    alive: Rc<Cell<usize>>,
    tally: Tally,
}

impl Contest {
    fn run(load: Load) -> Tally {
        let permits = Permits::new(Some(load.limit));
        let queue = Arc::<QueueCount>::default();
        let mut contest = Self {
            load,
            random: Rng::with_seed(load.seed),
            now: Instant::now(),
            alive: Rc::default(),
            tally: Tally::default(),
        };
        let mut workers: Vec<Clients> = load
            .clients
            .iter()
            .map(|count| contest.clients(*count, &permits, &queue))
            .collect();
        let end = contest.now + TIME;
        while contest.now < end {
            contest.now += TICK;
            for (at, clients) in workers.iter_mut().enumerate() {
                contest.step(at, clients);
            }
            assert!(permits.used() <= load.limit);
        }
        contest.tally
    }

    fn clients(&self, count: usize, permits: &Arc<Permits>, queue: &Arc<QueueCount>) -> Clients {
        let setup = EndpointSetup {
            permits: Arc::clone(permits),
            may_h2: self.load.speaks_h2,
            may_h1: !self.load.speaks_h2,
        };
        let limits = PoolLimits {
            idle_count: 64,
            idle_time: Duration::from_secs(60),
            queue: 1000,
            queue_time: Duration::from_secs(5),
        };
        Clients {
            own: Worker {
                pool: Pool::new(vec![setup], limits, Arc::clone(queue)),
                waiting: Vec::new(),
                demands: BTreeMap::new(),
                checked: BTreeSet::new(),
                lent: Vec::new(),
                connects: Vec::new(),
            },
            thinking: vec![self.now; count],
            waiting: BTreeMap::new(),
            lent: Vec::new(),
            connects: Vec::new(),
        }
    }

    fn step(&mut self, at: usize, clients: &mut Clients) {
        let now = self.now;
        for order in clients.own.pool.take_connects() {
            self.tally.connects += 1;
            clients.connects.push((now + self.load.connect, order));
        }
        while let Some(index) = clients.connects.iter().position(|(end, _)| *end <= now) {
            let (_, order) = clients.connects.swap_remove(index);
            let connected = self.connected(&clients.own, order.permit);
            clients.own.pool.connected(0, false, connected, now);
        }
        while let Some(index) = clients.lent.iter().position(|(end, _)| *end <= now) {
            match clients.lent.swap_remove(index).1 {
                Lent::Connection(at, it) => clients.own.pool.keep(at, released(it), now),
                Lent::Stream(link) => {
                    self.tally.cut += usize::from(link.0.is_going.get());
                    link.end_stream();
                }
            }
            self.tally.served[at] += 1;
            let think = self.random.u32(..self.load.think[at]);
            clients.thinking.push(now + TICK * think);
        }
        while let Some(index) = clients.thinking.iter().position(|end| *end <= now) {
            clients.thinking.swap_remove(index);
            self.request(clients);
        }
        if clients.own.is_due(now) {
            clients.own.pool.on_wake(now);
        }
        self.receive(clients);
    }

    fn connected(&self, own: &Worker, permit: Permit) -> Connected<FakeConnection, FakeLink> {
        match self.load.speaks_h2 {
            true => FakeLink::connected(&own.pool, STREAMS_MAX, permit),
            false => Connected::Http1(FakeConnection::open(&self.alive, permit)),
        }
    }

    fn request(&mut self, clients: &mut Clients) {
        match clients.own.pool.take(0, Demand::Any, self.now) {
            Some(Idle::Connection(it)) => self.lend(clients, Lent::Connection(0, it)),
            Some(Idle::Stream(link)) => self.lend(clients, Lent::Stream(link)),
            None => {
                let join = Join {
                    demand: Demand::Any,
                    at: 0,
                    avoid: Vec::new(),
                    connect: Duration::from_secs(1),
                };
                let id = clients.own.pool.join(join, self.now).unwrap();
                clients.waiting.insert(id, self.now);
            }
        }
    }

    fn receive(&mut self, clients: &mut Clients) {
        let context = Context::from_waker(Waker::noop());
        for (id, since) in std::mem::take(&mut clients.waiting) {
            let Poll::Ready(grant) = clients.own.pool.poll(id, &context) else {
                clients.waiting.insert(id, since);
                self.tally.longest = self.tally.longest.max(self.now - since);
                continue;
            };
            match grant {
                Grant::Connection { connection, .. } => {
                    self.lend(clients, Lent::Connection(0, connection));
                }
                Grant::Stream { link, .. } => self.lend(clients, Lent::Stream(link)),
                Grant::Failed { .. } | Grant::QueueFull => self.tally.failed += 1,
            }
        }
    }

    fn lend(&mut self, clients: &mut Clients, lent: Lent) {
        if let Lent::Stream(link) = &lent {
            link.0.open.set(link.0.open.get() + 1);
        }
        let ticks = (self.load.reply.as_micros() / TICK.as_micros()) as u32;
        let end = self.now + TICK * self.random.u32(1..=ticks.max(1));
        clients.lent.push((end, lent));
    }
}

fn loads() -> impl Iterator<Item = Load> {
    (1..=4).flat_map(|seed| {
        [false, true].map(|speaks_h2| Load {
            seed,
            speaks_h2,
            limit: 1,
            clients: [25, 25],
            think: [4, 4],
            connect: Duration::from_millis(1),
            reply: Duration::from_millis(1),
        })
    })
}

/// One connection for two workers went from one to the other after eight requests, or whenever no
/// stream was open for a moment.
#[test]
fn workers_with_too_few_connections_do_not_hand_them_over_all_the_time() {
    for load in loads() {
        let tally = Contest::run(load);
        // Ten in a second, and the first one.
        assert!(tally.connects <= 51, "{load:?}: {tally:?}");
        assert_eq!(tally.failed, 0, "{load:?}");
        // Both are served, and nobody waits for longer than the other one's turn and its own.
        let [one, other] = tally.served;
        assert!(one * 3 >= other && other * 3 >= one, "{load:?}: {tally:?}");
        let longest = Duration::from_millis(150);
        assert!(tally.longest <= longest, "{load:?}: {tally:?}");
        assert_eq!(
            tally.cut, 0,
            "{load:?}: streams were open on what was closed"
        );
    }
}

/// A worker that is hardly used gives what it has away at once.
#[test]
fn an_idle_connection_goes_to_the_worker_that_needs_it() {
    for load in loads() {
        let load = Load {
            clients: [1, 0],
            ..load
        };
        let alone = Contest::run(load);
        assert_eq!(alone.connects, 1, "{load:?}");
        let busy = Load {
            clients: [25, 1],
            think: [4, 800],
            ..load
        };
        let tally = Contest::run(busy);
        assert!(tally.longest <= Duration::from_millis(150), "{tally:?}");
        // The one client's connection idles, and is not kept for the length of a tenure.
        let all = Contest::run(Load {
            clients: [25, 0],
            ..load
        });
        assert!(tally.served[0] * 4 > all.served[0] * 3, "{tally:?} {all:?}");
        assert!(tally.connects <= 2 * tally.served[1] + 2, "{tally:?}");
    }
}

/// Where connections take long to be made, they are kept for longer; not so long that a waiter's
/// time would be over.
#[test]
fn connections_that_take_long_are_kept_for_long() {
    for load in loads() {
        let load = Load {
            connect: Duration::from_millis(60),
            ..load
        };
        let tally = Contest::run(load);
        assert!(tally.connects <= 9, "{load:?}: {tally:?}");
        assert!(tally.longest <= Duration::from_millis(900), "{tally:?}");
        assert!(tally.served.iter().all(|it| *it > 100), "{tally:?}");
    }
}

/// More connections than workers, and more clients on one of them.
#[test]
fn connections_follow_the_clients_in_peace() {
    for load in loads() {
        let load = Load {
            limit: 3,
            clients: [30, 10],
            ..load
        };
        let tally = Contest::run(load);
        assert!(tally.connects <= 2 * 51 + 3, "{load:?}: {tally:?}");
        assert!(
            tally.longest <= Duration::from_millis(250),
            "{load:?}: {tally:?}"
        );
    }
}
