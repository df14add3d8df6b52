//! Rounds in which processes are killed (SIGKILL): the engine, the broker, databases; and one in
//! which the receiver is away.

use super::Campaign;
use crate::campaign::books::Way;
use crate::campaign::receiver::Mode;
use crate::campaign::servers::{Server, Servers};
use crate::command::Failure;

/// Which of the servers.
type Which = fn(&mut Servers) -> &mut Server;

const BROKER: Which = |it| &mut it.broker;
const POSTGRES: Which = |it| &mut it.postgres;
const MARIADB: Which = |it| &mut it.mariadb;

impl Campaign {
    pub(super) fn engine_killed(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(&Way::ALL, 0);
        for _ in 0..self.random.u8(1..=4) {
            self.pause(50, 1500);
            self.kill_engine()?;
        }
        self.pause(50, 500);
        publishers.stop();
        Ok(())
    }

    pub(super) fn receiver_away(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(&Way::ALONE, 0);
        for mode in [Mode::Refuses, Mode::Drops, Mode::Slow] {
            self.receiver.set(mode);
            self.tally.fault();
            self.pause(100, 800);
            if self.random.bool() {
                self.kill_engine()?;
            }
        }
        publishers.stop();
        self.receiver.set(Mode::Up);
        Ok(())
    }

    pub(super) fn broker_killed(&mut self) -> Result<(), Failure> {
        self.servers_killed(&[BROKER], false)
    }

    pub(super) fn database_killed(&mut self) -> Result<(), Failure> {
        self.servers_killed(&[POSTGRES, MARIADB], false)
    }

    pub(super) fn all_killed(&mut self) -> Result<(), Failure> {
        self.servers_killed(&[BROKER, POSTGRES, MARIADB], true)
    }

    /// Kills some servers under load, and perhaps the engine while they are away.
    fn servers_killed(&mut self, which: &[Which], always_engine: bool) -> Result<(), Failure> {
        let publishers = self.publish(&Way::ALL, 0);
        for _ in 0..self.random.u8(1..=2) {
            self.pause(200, 1500);
            for which in which {
                which(&mut self.servers).kill()?;
                self.tally.fault();
                self.pause(1, 300);
            }
            if always_engine || self.random.u8(..3) == 0 {
                self.kill_engine()?;
            }
            self.pause(50, 1500);
            let begin = self.random.usize(..which.len());
            for which in which.iter().cycle().skip(begin).take(which.len()) {
                which(&mut self.servers).start_again()?;
            }
            // A server that has just come back.
            if self.random.u8(..3) == 0 {
                self.kill_engine()?;
            }
        }
        self.pause(200, 1500);
        publishers.stop();
        Ok(())
    }
}
