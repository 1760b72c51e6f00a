//! Which of several things is due first (the nodes of a network, the directions of a link): in logarithmic time where there are
//! many.

use bentpipe_net::time::Instant;

/// When each of some nodes is due. [`Instant::FAR`]: never.
#[derive(Clone, Debug)]
pub struct Agenda {
    due: Vec<Instant>,
    /// A tournament among the nodes: entry 1 is the winner of all, the winner of `i` was found among those of `2i` and
    /// `2i + 1`, and node `n` enters at `leaves + n`. Empty for few nodes, which are compared one by one.
    winners: Vec<u32>,
    leaves: usize,
}

/// Up to this many nodes a look at each costs less than keeping the tournament.
const FEW: usize = 16;

impl Agenda {
    /// No node is due.
    #[must_use]
    pub fn new(nodes: usize) -> Agenda {
        let leaves = nodes.next_power_of_two();
        let mut winners = Vec::new();
        if nodes > FEW {
            winners = vec![0; 2 * leaves];
            // Places behind the last node hold it once more, and never win against it.
            (0..leaves).for_each(|place| winners[leaves + place] = place.min(nodes - 1) as u32);
            (1..leaves).rev().for_each(|place| winners[place] = winners[2 * place]);
        }
        Agenda { due: vec![Instant::FAR; nodes], winners, leaves }
    }

    /// Node `node` is due at `at`.
    #[inline]
    pub fn set(&mut self, node: usize, at: Instant) {
        self.due[node] = at;
        if !self.winners.is_empty() {
            self.replay(node);
        }
    }

    /// The matches on a node's path, again.
    fn replay(&mut self, node: usize) {
        let mut place = (self.leaves + node) / 2;
        while place > 0 {
            let [left, right] = [self.winners[2 * place], self.winners[2 * place + 1]];
            let right_wins = self.due[right as usize] < self.due[left as usize];
            self.winners[place] = if right_wins { right } else { left };
            place /= 2;
        }
    }

    /// The node that is due first, and when; of several, the one with the lowest number.
    #[must_use]
    #[inline]
    pub fn first(&self) -> (usize, Instant) {
        if !self.winners.is_empty() {
            let winner = self.winners[1] as usize;
            return (winner, self.due[winner]);
        }
        let (mut first, mut at) = (0, Instant::FAR);
        for (node, due) in self.due.iter().enumerate() {
            if *due < at {
                (first, at) = (node, *due);
            }
        }
        (first, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_of_many_is_the_first_of_all(
            nodes in 1_usize..80,
            changes in proptest::collection::vec((0_usize..80, 0_u64..9), 1..200),
        ) {
            let mut agenda = Agenda::new(nodes);
            let mut due = vec![Instant::FAR; nodes];
            for (node, ns) in changes {
                let (node, at) = (node % nodes, if ns == 8 { Instant::FAR } else { Instant { ns } });
                agenda.set(node, at);
                due[node] = at;
                let least = *due.iter().min().unwrap();
                prop_assert_eq!(agenda.first().1, least);
                if least < Instant::FAR {
                    prop_assert_eq!(agenda.first().0, due.iter().position(|at| *at == least).unwrap());
                }
            }
        }
    }
}
