//! What runs next: any work whose turn streams, events and edges allow, chosen from the seed.

use std::sync::Arc;

use graphgrove_device::StreamId;

use crate::clock::Clock;
use crate::host_call::RunningCall;
use crate::random::mix;
use crate::scope::KernelFault;
use crate::state::{Garbage, Item, Launch, State, StreamState};

/// A graph that a stream is in the middle of.
#[derive(Debug)]
pub(crate) struct GraphRun {
    launch: Launch,
    /// How many nodes each node still waits for.
    waits: Vec<u32>,
    /// The nodes that wait for nothing any more.
    ready: Vec<u32>,
    left: usize,
    /// The clock behind which each node runs, as far as the nodes before it have run.
    clocks: Vec<Clock>,
    /// The clock of everything in the graph that has run.
    end: Clock,
}

impl GraphRun {
    fn new(launch: Launch, start: &Clock) -> Self {
        let nodes = &launch.program.nodes;
        let waits: Vec<u32> = nodes.iter().map(|node| node.after.len() as u32).collect();
        let ready = (0..nodes.len() as u32).filter(|&node| waits[node as usize] == 0).collect();
        Self {
            left: nodes.len(),
            clocks: vec![start.clone(); nodes.len()],
            end: start.clone(),
            waits,
            ready,
            launch,
        }
    }
}

/// What one step came to.
pub(crate) enum Step {
    /// There was nothing that could run.
    Nothing,
    /// A piece of work has run.
    Ran,
    /// A host function has its turn, and is to be called without the lock.
    Call(RunningCall),
}

impl State {
    /// Runs one piece of work.
    pub(crate) fn step(&mut self) -> Step {
        if self.fault.is_some() {
            self.discard_all();
            return Step::Nothing;
        }
        let Some(stream) = self.choose() else { return Step::Nothing };
        let Some(state) = self.streams.get_mut(&stream) else { return Step::Nothing };
        let call = if state.running.is_some() {
            self.run_node(stream)
        } else if let Some(queued) = state.queue.pop_front() {
            self.queued -= 1;
            state.clock.join(&queued.host);
            state.ticket = queued.ticket;
            self.run_item(stream, queued.item)
        } else {
            None
        };
        if let Some(call) = call {
            if let Some(state) = self.streams.get_mut(&stream) {
                state.calling = true;
            }
            self.calling += 1;
            return Step::Call(call);
        }
        self.settle(stream);
        Step::Ran
    }

    /// Goes on after a host function has returned.
    pub(crate) fn end_call(&mut self, call: RunningCall, outcome: Result<(), KernelFault>) {
        let stream = call.stream;
        self.calling -= 1;
        if let Some(state) = self.streams.get_mut(&stream) {
            state.calling = false;
        }
        if let Err(fault) = outcome {
            self.poison(fault.cause().to_owned());
        }
        self.garbage.push(Garbage::Call { _call: call });
        self.end_graph(stream);
        self.settle(stream);
    }

    fn choose(&mut self) -> Option<StreamId> {
        if let Some(stream) = self.favourite
            && self.is_ready(stream)
            && self.random.below(4) > 0
        {
            return Some(stream);
        }
        let ready = self.active.iter().filter(|&&stream| self.is_ready(stream)).count();
        if ready == 0 {
            return None;
        }
        let pick = self.random.below(ready);
        self.favourite = self.active.iter().copied().filter(|&stream| self.is_ready(stream)).nth(pick);
        self.favourite
    }

    fn is_ready(&self, stream: StreamId) -> bool {
        let Some(state) = self.streams.get(&stream) else { return false };
        if state.calling {
            return false;
        }
        if state.running.is_some() {
            return true;
        }
        match state.queue.front().map(|queued| &queued.item) {
            None => false,
            Some(Item::Wait(recording)) => recording.reached().is_some(),
            Some(Item::Launch(Launch { after: Some(before), .. })) => before.reached().is_some(),
            Some(_) => true,
        }
    }

    fn run_item(&mut self, stream: StreamId, item: Item) -> Option<RunningCall> {
        let state = self.streams.get_mut(&stream)?;
        match item {
            Item::Op(op) => {
                let lane = state.lane;
                let count = self.lanes.tick(lane);
                state.clock.set(lane, count);
                let clock = state.clock.clone();
                self.digest = mix(self.digest, stream.get());
                let call = self.execute(&op, &clock, lane, count, stream, None);
                self.garbage.push(Garbage::Item { _item: Item::Op(op) });
                return call;
            }
            Item::Record(recording) => recording.reach(state.clock.clone()),
            Item::Wait(recording) => {
                if let Some(clock) = recording.reached() {
                    state.clock.join(clock);
                }
            }
            Item::Launch(launch) => {
                if let Some(clock) = launch.after.as_ref().and_then(|before| before.reached()) {
                    state.clock.join(clock);
                }
                state.running = Some(GraphRun::new(launch, &state.clock));
                self.end_graph(stream);
            }
        }
        None
    }

    fn run_node(&mut self, stream: StreamId) -> Option<RunningCall> {
        let run = self.streams.get_mut(&stream)?.running.as_mut()?;
        let pick = self.random.below(run.ready.len());
        let place = run.ready.swap_remove(pick) as usize;
        let program = Arc::clone(&run.launch.program);
        let node = &program.nodes[place];
        let lane = run.launch.lanes[program.chains[place] as usize];
        let count = self.lanes.tick(lane);
        let mut clock = std::mem::take(&mut run.clocks[place]);
        clock.set(lane, count);
        for &next in &program.before[place] {
            run.clocks[next as usize].join(&clock);
            run.waits[next as usize] -= 1;
            if run.waits[next as usize] == 0 {
                run.ready.push(next);
            }
        }
        run.end.join(&clock);
        run.left -= 1;
        self.digest = mix(mix(self.digest, stream.get()), place as u64);
        let call = self.execute(&node.op, &clock, lane, count, stream, node.id);
        if call.is_none() {
            self.end_graph(stream);
        }
        call
    }

    /// Ends the graph that the stream is in the middle of, if all of its nodes have run.
    fn end_graph(&mut self, stream: StreamId) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if let Some(run) = state.running.take_if(|run| run.left == 0) {
            state.clock.join(&run.end);
            let Launch { program, lanes, done, .. } = run.launch;
            done.reach(state.clock.clone());
            self.give_lanes_back(lanes);
            self.garbage.push(Garbage::Program { _program: program });
        }
    }

    /// Strikes a stream that has nothing left to do off the list.
    fn settle(&mut self, stream: StreamId) {
        if self.streams.get(&stream).is_none_or(StreamState::is_idle) {
            self.active.retain(|&other| other != stream);
            self.reap(stream);
        }
    }

    /// Throws all waiting work away, as a poisoned device does. Points that somebody waits for count as reached.
    fn discard_all(&mut self) {
        let mut dropped = Vec::new();
        for state in self.streams.values_mut() {
            if let Some(run) = state.running.take() {
                dropped.push(Item::Launch(run.launch));
            }
            dropped.extend(state.queue.drain(..).map(|queued| queued.item));
        }
        for item in dropped {
            self.drop_item(item);
        }
        self.queued = 0;
        let idle = std::mem::take(&mut self.active);
        for stream in idle {
            self.reap(stream);
        }
    }
}
