//! Which steps and lists of steps the tests have reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use component::definition::Place;
use flow::LoadedFlow;

/// Which places of all flows have been reached.
#[derive(Default)]
pub(super) struct Coverage {
    flows: BTreeMap<Arc<str>, Vec<(Place, bool)>>,
}

/// How many places there are and how many of them have been reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub reached: usize,
    pub all: usize,
}

impl Count {
    /// The part that has been reached, rounded down.
    pub fn percent(self) -> usize {
        (self.reached * 100).checked_div(self.all).unwrap_or(100)
    }

    fn add(&mut self, is_reached: bool) {
        self.all += 1;
        self.reached += usize::from(is_reached);
    }
}

impl Coverage {
    /// Nothing of these flows has been reached.
    pub fn of(flows: &[LoadedFlow]) -> Self {
        let flows = flows.iter().map(|flow| {
            let places = flow.places.iter().map(|place| (place.clone(), false));
            (Arc::clone(&flow.name), places.collect())
        });
        Self {
            flows: flows.collect(),
        }
    }

    /// A place of a flow has been reached.
    pub fn visit(&mut self, flow: &str, place: u32) {
        let places = self.flows.get_mut(flow);
        if let Some((_, is_reached)) = places.and_then(|it| it.get_mut(place as usize)) {
            *is_reached = true;
        }
    }

    /// Steps, and lists of steps.
    pub fn counts(&self) -> (Count, Count) {
        let (mut steps, mut branches) = (Count::default(), Count::default());
        for (place, is_reached) in self.flows.values().flatten() {
            match place.is_step {
                true => steps.add(*is_reached),
                false => branches.add(*is_reached),
            }
        }
        (steps, branches)
    }

    /// The places that have not been reached, with their flows.
    pub fn missed(&self) -> impl Iterator<Item = (&str, &Place)> {
        self.flows.iter().flat_map(|(flow, places)| {
            let missed = places.iter().filter(|(_, is_reached)| !is_reached);
            missed.map(|(place, _)| (&**flow, place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_rounded_down() {
        let percent = |reached, all| Count { reached, all }.percent();
        assert_eq!(percent(2, 3), 66);
        assert_eq!(percent(3, 3), 100);
        assert_eq!(percent(0, 0), 100);
    }
}
