//! What the tests of a flow may name: the systems that it and the flows that it calls reach, their
//! steps, and these flows themselves.

use crate::compile::Flow;

/// What the tests of a flow may name.
#[derive(Default)]
pub(super) struct Known {
    /// Connections, hosts of URLs and called flows.
    systems: Vec<String>,
    /// Steps.
    steps: Vec<String>,
}

impl Known {
    /// What the tests of the flow at this place may name.
    pub fn of(flows: &[Flow], at: usize) -> Self {
        let mut known = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        let mut open: Vec<&Flow> = flows.get(at).into_iter().collect();
        while let Some(flow) = open.pop() {
            if seen.contains(&&*flow.name) {
                continue;
            }
            seen.push(&flow.name);
            known.add(flow);
            let calls = flow.calls.iter().filter_map(|(name, _)| {
                let mut others = flows.iter();
                others.find(|other| *other.name == **name)
            });
            open.extend(calls);
        }
        known
    }

    fn add(&mut self, flow: &Flow) {
        self.systems.extend(flow.connections.iter().cloned());
        for upstream in &flow.upstreams {
            self.systems.push(upstream.name.to_string());
            self.systems.push(upstream.authority());
        }
        let calls = flow.calls.iter().map(|(name, _)| name.clone());
        self.systems.extend(calls);
        let steps = flow.places.iter().filter(|place| place.is_step);
        self.steps.extend(steps.map(|place| place.label.clone()));
    }

    pub fn has(&self, name: &str) -> bool {
        self.all().any(|known| known == name)
    }

    /// All of them, for hints.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.systems.iter().chain(&self.steps).map(String::as_str)
    }

    /// The systems, each once.
    pub fn systems(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.systems.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
