//! What each kind of fault has come to.

/// The sums of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    rounds: u64,
    faults: u64,
    /// Damage that was told, and that was harmless.
    told: u64,
    harmless: u64,
    /// What the books have counted: acknowledged, lost, silent, wrong.
    counts: [u64; 4],
}

/// The sums of all kinds.
#[derive(Debug, Default)]
pub struct Tally {
    kinds: Vec<(&'static str, Sums)>,
    current: usize,
    before: [u64; 4],
}

impl Tally {
    pub fn begin(&mut self, kind: &'static str, counts: [u64; 4]) {
        let known = self.kinds.iter().position(|it| it.0 == kind);
        self.current = known.unwrap_or(self.kinds.len());
        if known.is_none() {
            self.kinds.push((kind, Sums::default()));
        }
        self.before = counts;
        self.add(|sums| sums.rounds += 1);
    }

    fn add(&mut self, change: impl FnOnce(&mut Sums)) {
        if let Some((_, sums)) = self.kinds.get_mut(self.current) {
            change(sums);
        }
    }

    pub fn fault(&mut self) {
        self.add(|sums| sums.faults += 1);
    }

    pub fn told(&mut self) {
        self.add(|sums| sums.told += 1);
    }

    pub fn harmless(&mut self) {
        self.add(|sums| sums.harmless += 1);
    }

    pub fn end(&mut self, counts: [u64; 4]) {
        let before = self.before;
        self.add(|sums| {
            let more = counts
                .into_iter()
                .zip(before)
                .map(|(now, before)| now - before);
            sums.counts
                .iter_mut()
                .zip(more)
                .for_each(|(sum, more)| *sum += more);
        });
    }

    /// Prints a line for each kind, and one for all. True when nothing was lost or wrong.
    pub fn report(&self, seed: u64, counts: [u64; 4]) -> bool {
        println!(
            "fault               rounds  faults  told  harmless  acknowledged  lost  silent  wrong"
        );
        for (kind, sums) in &self.kinds {
            let Sums {
                rounds,
                faults,
                told,
                harmless,
                counts,
            } = sums;
            let [acknowledged, lost, silent, wrong] = counts;
            println!(
                "{kind:<18}  {rounds:>6}  {faults:>6}  {told:>4}  {harmless:>8}  \
                 {acknowledged:>12}  {lost:>4}  {silent:>6}  {wrong:>5}"
            );
        }
        let [acknowledged, lost, silent, wrong] = counts;
        println!(
            "seed {seed}: acknowledged {acknowledged}, lost {lost}, silent loss {silent}, \
             wrong data {wrong}"
        );
        [lost, silent, wrong] == [0; 3]
    }
}
