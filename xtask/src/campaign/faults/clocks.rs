//! Rounds in which the time of day jumps, and flows are loaded again.

use std::fs;

use super::Campaign;
use crate::campaign::books::Way;
use crate::campaign::receiver::Mode;
use crate::command::Failure;

impl Campaign {
    pub(super) fn clock_and_reloads(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(&Way::ALL, 0);
        for _ in 0..3 {
            let days = self.random.i64(-40..40);
            // The clock of a machine without a battery.
            let offset = if self.random.u8(..4) == 0 {
                -1_700_000_000
            } else {
                days * 86_400
            };
            fs::write(self.engine.clock_file(), offset.to_string())?;
            self.tally.fault();
            self.receiver.set(Mode::Refuses);
            self.pause(100, 600);
            match self.random.u8(..2) {
                0 => self.kill_engine()?,
                _ => {
                    self.versions += 1;
                    self.engine.write_flows(self.versions)?;
                    self.engine.signal("HUP")?;
                    self.tally.fault();
                }
            }
            self.receiver.set(Mode::Up);
            self.pause(100, 600);
        }
        publishers.stop();
        fs::write(self.engine.clock_file(), "0")?;
        Ok(())
    }
}
