//! What the tests of a flow may name: the systems that it and the flows that it calls reach, their
//! steps, and these flows themselves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use component::connection::Connections;

use crate::compile::Flow;

/// What the tests of a flow may name.
#[derive(Default)]
pub(super) struct Known {
    /// Connections, and documents beside flows, which can be stood in for like these.
    connections: Vec<Connections>,
    /// Hosts of URLs and called flows.
    others: Vec<String>,
    /// Steps.
    steps: Vec<String>,
}

impl Known {
    /// What the tests of the flow at this place may name.
    pub fn of(flows: &[Flow], by_name: &HashMap<Arc<str>, usize>, at: usize) -> Self {
        let mut known = Self::default();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut open: Vec<&Flow> = flows.get(at).into_iter().collect();
        while let Some(flow) = open.pop() {
            if !seen.insert(&flow.name) {
                continue;
            }
            known.add(flow);
            let calls = flow.calls.iter();
            let calls = calls.filter_map(|it| flows.get(*by_name.get(it.flow.value.as_str())?));
            open.extend(calls);
        }
        known
    }

    fn add(&mut self, flow: &Flow) {
        self.connections.push(flow.connections.clone());
        for upstream in &flow.upstreams {
            self.others.push(upstream.name.to_string());
            self.others.push(upstream.authority());
        }
        let calls = flow.calls.iter().map(|it| it.flow.value.clone());
        self.others.extend(calls);
        let steps = flow.places.iter().filter(|place| place.is_step);
        self.steps.extend(steps.map(|place| place.label.clone()));
    }

    pub fn has(&self, name: &str) -> bool {
        let mut others = self.others.iter().chain(&self.steps);
        self.connections.iter().any(|it| it.has_system(name)) || others.any(|it| it == name)
    }

    /// All of them, for hints.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        let systems = self.connections.iter().flat_map(Connections::systems);
        let others = self.others.iter().chain(&self.steps);
        systems.chain(others.map(String::as_str))
    }

    /// The systems, each once.
    pub fn systems(&self) -> Vec<&str> {
        let systems = self.connections.iter().flat_map(Connections::systems);
        let others = self.others.iter().map(String::as_str);
        let mut names: Vec<&str> = systems.chain(others).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
