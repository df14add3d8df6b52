//! Logouts while sessions are read, written, renewed and made, in many seeded orders of what can
//! happen, restarts included: who has been logged out is out.

use std::sync::Arc;

use access::oidc::{
    Limits, LogoutOf, LogoutUnderWay, LogoutWritten, Session, SessionKey, SessionRead, Sessions,
};
use fastrand::Rng;
use serde_json::Map;

const START: u64 = 1_800_000_000;
const SEEDS: u64 = 1500;
const STEPS: u64 = 120;
const LIMITS: Limits = Limits {
    idle: 1_000_000,
    count_max: 4,
    bytes_max: 1 << 30,
};

/// Somebody who logs in.
struct Login {
    number: u64,
    /// What had happened before it began.
    after: usize,
    /// When the provider has answered.
    began: u64,
    /// Whether the browser has its cookie.
    is_given: bool,
}

impl Login {
    fn key(&self) -> SessionKey {
        Session::key(&self.number.to_be_bytes())
    }

    fn subject(&self) -> String {
        format!("user {}", self.number % 2)
    }

    fn name(&self) -> String {
        format!("there {}", self.number % 3)
    }

    fn session(&self) -> Arc<Session> {
        Arc::new(Session {
            claims: Map::new(),
            subject: self.subject(),
            provider_session: Some(self.name()),
            id_token: String::new(),
            nonce: String::new(),
            refresh_token: None,
            scopes: Vec::new(),
            began: self.began,
            ends: START + 1_000_000,
            renew_at: None,
            stale_at: None,
        })
    }
}

/// A change of the data folder. They are made one after the other.
#[derive(Clone)]
enum Change {
    Save(usize),
    Delete(usize),
    /// Sessions have ended that began until this time.
    Note(LogoutOf, u64),
}

/// Something that goes on while others do.
enum Task {
    /// A request with a cookie that is not in the table; how many of its questions are answered.
    Read(usize, SessionRead, u8),
    /// The provider is asked, the session is written, and put into the table.
    LogIn(usize, SessionRead, u8),
    Renew(usize, SessionRead),
    LogOut(LogOut),
}

/// A logout that is being written.
struct LogOut {
    logout: LogoutUnderWay,
    /// Its place in the list.
    number: usize,
    /// The changes that are still to be made, the next one last.
    changes: Vec<Change>,
    /// Whether all others were made.
    is_whole: bool,
}

struct World {
    seed: u64,
    random: Rng,
    now: u64,
    sessions: Sessions<()>,
    logins: Vec<Login>,
    disk: Vec<Change>,
    /// How many changes have been answered: a crash loses none of them.
    kept: usize,
    tasks: Vec<Task>,
    /// Logouts with what had happened before, and whether they are written.
    logouts: Vec<(LogoutOf, usize, bool)>,
    count: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            random: Rng::with_seed(seed),
            now: START,
            sessions: Sessions::default(),
            logins: Vec::new(),
            disk: Vec::new(),
            kept: 0,
            tasks: Vec::new(),
            logouts: Vec::new(),
            count: 0,
        }
    }

    fn has_row(&self, login: usize) -> bool {
        let of_it = self.disk.iter().rev();
        let mut of_it = of_it.filter_map(|it| match it {
            Change::Save(one) if *one == login => Some(true),
            Change::Delete(one) if *one == login => Some(false),
            _ => None,
        });
        of_it.next() == Some(true)
    }

    /// Whether a note says that the session has ended: of its subject, or of its name.
    fn is_noted(&self, login: usize, of_subject: bool) -> bool {
        let login = &self.logins[login];
        let mut notes = self.disk.iter().rev().filter_map(|it| match it {
            Change::Note(LogoutOf::Party { subject, session }, at) => match (subject, session) {
                (Some(subject), None) if of_subject && *subject == login.subject() => Some(*at),
                (_, Some(session)) if !of_subject && *session == login.name() => Some(*at),
                _ => None,
            },
            _ => None,
        });
        notes.next().is_some_and(|at| login.began <= at)
    }

    fn any_login(&mut self) -> Option<usize> {
        self.random.choice(0..self.logins.len())
    }

    fn begin(&mut self) {
        self.count += 1;
        let kind = self.random.u8(..9);
        if kind < 2 {
            let number = self.logins.len();
            self.logins.push(Login {
                number: number as u64,
                after: self.count,
                began: 0,
                is_given: false,
            });
            let read = self.sessions.begin_read();
            return self.tasks.push(Task::LogIn(number, read, 0));
        }
        let Some(login) = self.any_login() else {
            return;
        };
        let key = self.logins[login].key();
        match kind {
            2..=4 => {
                let is_there = self.sessions.contains(&key);
                if self.logins[login].is_given && !is_there {
                    let read = self.sessions.begin_read();
                    self.tasks.push(Task::Read(login, read, 0));
                }
            }
            5 if self.sessions.contains(&key) => {
                let read = self.sessions.begin_read();
                self.tasks.push(Task::Renew(login, read));
            }
            // It was used: that is written, if it is still there.
            5 => {}
            6 => self.save(login),
            _ => self.log_out(login),
        }
    }

    /// Writes a session that is in the table, which is looked at when the change is queued.
    fn save(&mut self, login: usize) {
        if self.sessions.contains(&self.logins[login].key()) {
            self.disk.push(Change::Save(login));
        }
    }

    fn log_out(&mut self, login: usize) {
        let one = &self.logins[login];
        let (subject, name, key) = (one.subject(), one.name(), one.key());
        let of = match self.random.u8(..4) {
            0 | 1 => LogoutOf::One(key),
            2 => LogoutOf::Party {
                subject: Some(subject),
                session: None,
            },
            _ => LogoutOf::Party {
                subject: self.random.bool().then_some(subject),
                session: Some(name),
            },
        };
        let (ended, logout) = self.sessions.log_out(of.clone(), self.now);
        let mut changes: Vec<Change> = match &of {
            LogoutOf::One(_) => vec![Change::Delete(login)],
            LogoutOf::Party { .. } => vec![Change::Note(of.clone(), self.now)],
        };
        let rows = ended.iter().map(|(key, _)| {
            let mut all = self.logins.iter();
            Change::Delete(all.position(|it| it.key() == *key).unwrap())
        });
        changes.extend(rows);
        self.tasks.push(Task::LogOut(LogOut {
            logout,
            number: self.logouts.len(),
            changes,
            is_whole: true,
        }));
        self.logouts.push((of, self.count, false));
    }

    fn go_on(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let at = self.random.usize(..self.tasks.len());
        let next = match self.tasks.swap_remove(at) {
            Task::Read(login, read, step) => self.read(login, read, step),
            Task::LogIn(login, read, step) => self.log_in(login, read, step),
            Task::Renew(login, read) => {
                let one = &self.logins[login];
                let renewed = (&one.key(), one.session(), ());
                if self.sessions.renew(&read, renewed) {
                    self.save(login);
                }
                None
            }
            Task::LogOut(logout) => self.write(logout),
        };
        self.tasks.extend(next);
    }

    fn read(&mut self, login: usize, read: SessionRead, step: u8) -> Option<Task> {
        // The client may leave.
        let is_over = self.random.u8(..20) == 0
            || match step {
                0 => !self.has_row(login),
                1 | 2 => self.is_noted(login, step == 1),
                _ => false,
            };
        if is_over {
            self.sessions.abandon(&read);
            return None;
        }
        if step < 3 {
            return Some(Task::Read(login, read, step + 1));
        }
        self.put(login, &read);
        None
    }

    fn put(&mut self, login: usize, read: &SessionRead) -> bool {
        let one = &self.logins[login];
        let one = (one.key(), one.session(), ());
        let times = (self.now, self.now);
        self.sessions.put(read, one, times, LIMITS).is_some()
    }

    fn log_in(&mut self, login: usize, read: SessionRead, step: u8) -> Option<Task> {
        match step {
            0 => self.logins[login].began = self.now,
            1 => self.disk.push(Change::Save(login)),
            _ => {
                self.kept = self.disk.len();
                match self.put(login, &read) {
                    true => self.logins[login].is_given = true,
                    false => self.disk.push(Change::Delete(login)),
                }
                return None;
            }
        }
        Some(Task::LogIn(login, read, step + 1))
    }

    fn write(&mut self, mut one: LogOut) -> Option<Task> {
        let Some(change) = one.changes.pop() else {
            self.logouts[one.number].2 = one.is_whole;
            let until = START + 1_000_000;
            let written = match one.is_whole {
                true => LogoutWritten::Stored,
                false => LogoutWritten::Failed { until },
            };
            self.sessions.end_logout(&one.logout, written);
            return None;
        };
        let has_failed = self.random.u8(..8) == 0;
        // What has failed may be there all the same.
        if !has_failed || self.random.bool() {
            self.disk.push(change);
        }
        if !has_failed {
            self.kept = self.disk.len();
        }
        one.is_whole &= !has_failed;
        Some(Task::LogOut(one))
    }

    /// Ends the process. What was not answered may be on the disk, or the first part of it.
    fn restart(&mut self) {
        let kept = self.random.usize(self.kept..=self.disk.len());
        self.disk.truncate(kept);
        self.kept = kept;
        self.sessions = Sessions::default();
        self.tasks.clear();
        // Nobody has been told that the others have succeeded.
        self.logouts.retain(|it| it.2);
    }

    fn check(&self) {
        for login in &self.logins {
            if !self.sessions.contains(&login.key()) {
                continue;
            }
            for (of, count, _) in &self.logouts {
                let is_ended = login.after < *count && of.means(&login.key(), &login.session());
                let (seed, number) = (self.seed, login.number);
                assert!(!is_ended, "seed {seed}: {number} is back after {of:?}");
            }
        }
    }
}

#[test]
fn who_has_logged_out_is_out_in_every_order() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.now += world.random.u64(..2);
            match world.random.u8(..60) {
                0 => world.restart(),
                1..=25 => world.begin(),
                _ => world.go_on(),
            }
            world.check();
        }
    }
}
