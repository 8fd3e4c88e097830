//! The cheapest set of edges that parts a source from a sink.
//!
//! Dinic's algorithm: as long as the sink can be reached, find the levels of all vertices and push as much
//! flow as the levels let through. Cost O(V^2 E) at worst; the graphs here have few levels and take about
//! linear time. Source: Dinic, Algorithm for solution of a problem of maximum flow in networks with power
//! estimation, 1970; that the largest flow is the cheapest cut: Ford and Fulkerson, Maximal flow through a
//! network, 1956.

use std::collections::VecDeque;

/// Capacity of an edge that no cut may take.
pub(crate) const UNCUT: u64 = u64::MAX / 4;

/// A network. Vertices are numbers from 0; the first two are source and sink.
#[derive(Debug)]
pub(crate) struct Network {
    /// Edges that leave each vertex, as indices.
    leaving: Vec<Vec<usize>>,
    /// Where an edge leads and what it still lets through; the edge back is at the index with the last bit
    /// changed.
    edges: Vec<(usize, u64)>,
}

impl Network {
    pub(crate) const SOURCE: usize = 0;
    pub(crate) const SINK: usize = 1;

    pub(crate) fn new() -> Self {
        Self { leaving: vec![Vec::new(); 2], edges: Vec::new() }
    }

    pub(crate) fn vertex(&mut self) -> usize {
        self.leaving.push(Vec::new());
        self.leaving.len() - 1
    }

    pub(crate) fn edge(&mut self, from: usize, to: usize, capacity: u64) {
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.leaving[from].push(self.edges.len());
            self.edges.push((to, capacity));
        }
    }

    /// For each vertex whether it is on the sink's side of the cheapest cut; of several, the one nearest to
    /// the sink.
    pub(crate) fn sink_side(mut self) -> Vec<bool> {
        while let Some(levels) = self.levels() {
            let mut next = vec![0; self.leaving.len()];
            while self.push(&levels, &mut next) > 0 {}
        }
        let mut reaches = vec![false; self.leaving.len()];
        let mut open = vec![Self::SINK];
        reaches[Self::SINK] = true;
        while let Some(vertex) = open.pop() {
            for &back in &self.leaving[vertex] {
                let from = self.edges[back].0;
                if self.edges[back ^ 1].1 > 0 && !reaches[from] {
                    reaches[from] = true;
                    open.push(from);
                }
            }
        }
        reaches
    }

    /// Distance from the source along edges that let something through; `None` if the sink cannot be reached.
    fn levels(&self) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.leaving.len()];
        levels[Self::SOURCE] = 0;
        let mut open = VecDeque::from([Self::SOURCE]);
        while let Some(vertex) = open.pop_front() {
            for &edge in &self.leaving[vertex] {
                let (to, left) = self.edges[edge];
                if left > 0 && levels[to] == usize::MAX {
                    levels[to] = levels[vertex] + 1;
                    open.push_back(to);
                }
            }
        }
        (levels[Self::SINK] != usize::MAX).then_some(levels)
    }

    /// Pushes flow along one path that climbs the levels; returns how much. `next`: edges that are not used
    /// up yet.
    fn push(&mut self, levels: &[usize], next: &mut [usize]) -> u64 {
        let (mut path, mut at): (Vec<usize>, usize) = (Vec::new(), Self::SOURCE);
        while at != Self::SINK {
            let Some(&edge) = self.leaving[at].get(next[at]) else {
                // A dead end: one step back, and not here again.
                let Some(last) = path.pop() else { return 0 };
                at = self.edges[last ^ 1].0;
                next[at] += 1;
                continue;
            };
            let (to, left) = self.edges[edge];
            if left > 0 && levels[to] == levels[at] + 1 {
                path.push(edge);
                at = to;
            } else {
                next[at] += 1;
            }
        }
        let flow = path.iter().map(|&edge| self.edges[edge].1).min().unwrap_or(0);
        for edge in path {
            self.edges[edge].1 -= flow;
            self.edges[edge ^ 1].1 += flow;
        }
        flow
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Capacity of the cut with this sink side.
    fn cost(edges: &[(usize, usize, u64)], sink_side: &[bool]) -> u64 {
        edges.iter().filter(|(from, to, _)| !sink_side[*from] && sink_side[*to]).map(|edge| edge.2).sum()
    }

    fn cut(vertices: usize, edges: &[(usize, usize, u64)]) -> Vec<bool> {
        let mut network = Network::new();
        for _ in 2..vertices {
            network.vertex();
        }
        edges.iter().for_each(|&(from, to, capacity)| network.edge(from, to, capacity));
        network.sink_side()
    }

    #[test]
    fn of_two_equal_cuts_the_one_at_the_sink_is_taken() {
        // source -5-> 2 -5-> 3 -5-> sink
        assert_eq!(cut(4, &[(0, 2, 5), (2, 3, 5), (3, 1, 5)]), [false, true, false, false]);
    }

    proptest! {
        #[test]
        fn no_cut_is_cheaper(
            edges in proptest::collection::vec((0usize..7, 0usize..7, 0u64..9), 0..20)
        ) {
            let found = cut(7, &edges);
            prop_assert!(!found[0] && found[1]);
            let all = (0..1u32 << 5).map(|mask| {
                let side: Vec<bool> = (0..7).map(|v| v == 1 || v > 1 && mask >> (v - 2) & 1 == 1).collect();
                cost(&edges, &side)
            });
            prop_assert_eq!(cost(&edges, &found), all.min().unwrap());
        }
    }
}
