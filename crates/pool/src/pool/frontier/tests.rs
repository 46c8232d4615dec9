//! What lies behind what, and which lanes are handed on.

use super::*;

const A: StreamId = StreamId::new(1);
const B: StreamId = StreamId::new(2);
const C: StreamId = StreamId::new(3);

#[test]
fn a_use_is_before_the_main_lane_once_a_later_mark_was_waited_for() {
    let mut frontier = Frontier::new(A);
    let early = frontier.mark(B);
    let used = frontier.on(B);
    assert!(!frontier.is_before_main(used));
    frontier.wait(A, &early);
    assert!(!frontier.is_before_main(used));
    let late = frontier.mark(B);
    frontier.wait(A, &late);
    assert!(frontier.is_before_main(used));
    assert!(!frontier.is_before_main(frontier.stamp(Lane(1))));
}

#[test]
fn order_passes_through_a_third_stream() {
    let mut frontier = Frontier::new(A);
    let used = frontier.on(C);
    let c = frontier.mark(C);
    frontier.wait(B, &c);
    assert!(!frontier.is_before_main(used));
    let b = frontier.mark(B);
    frontier.wait(A, &b);
    assert!(frontier.is_before_main(used));
}

#[test]
fn an_order_inside_of_a_recording_says_nothing_about_work_outside() {
    let mut frontier = Frontier::new(A);
    let outside = frontier.on(B);
    frontier.begin_recording(A);
    let inside = frontier.on(B);
    assert!(frontier.counts(outside) && frontier.counts(inside));
    let mark = frontier.mark(B);
    frontier.wait(A, &mark);
    assert!(frontier.is_before_main(inside));
    assert!(!frontier.is_before_main(outside));
    assert_eq!(frontier.end_recording(), Some(Lane(2)));
    assert!(frontier.is_before_main(inside) && !frontier.counts(inside) && frontier.counts(outside));
    assert!(!frontier.is_before_main(outside));
    frontier.wait(A, &mark);
    assert!(!frontier.is_before_main(outside));
}

#[test]
fn a_recording_starts_behind_what_the_main_stream_had_waited_for() {
    let mut frontier = Frontier::new(A);
    let (used, birth) = (frontier.on(B), frontier.here());
    let mark = frontier.mark(B);
    frontier.wait(A, &mark);
    frontier.begin_recording(C);
    assert!(frontier.is_before_main(used) && frontier.is_before_main(birth));
    assert!(!frontier.is_before_stream(birth, B));
    let fork = frontier.mark(C);
    frontier.wait(B, &fork);
    assert!(frontier.is_before_stream(birth, B));
}

#[test]
fn the_next_main_stream_is_behind_the_one_before() {
    let mut frontier = Frontier::new(A);
    let birth = frontier.here();
    frontier.turn_to(B);
    assert!(frontier.is_main(B) && !frontier.is_main(A));
    assert!(frontier.is_before_main(birth));
    assert!(!frontier.is_before_main(frontier.stamp(Lane(0))));
}

#[test]
fn lanes_are_handed_on_and_their_old_streams_have_to_be_ordered_again() {
    let mut frontier = Frontier::new(A);
    let birth = frontier.here();
    let (first, open) = (StreamId::new(10), StreamId::new(11));
    let fork = frontier.mark(A);
    for stream in (10..10 + 3 * LANES as u64).map(StreamId::new) {
        frontier.wait(stream, &fork);
        assert!(frontier.is_before_stream(birth, stream));
        frontier.on(stream);
        if stream != open {
            let join = frontier.mark(stream);
            frontier.wait(A, &join);
        }
    }
    assert_eq!(frontier.len(), LANES);
    assert!(frontier.has_open_use(open) && frontier.is_before_stream(birth, open));
    assert!(!frontier.is_before_stream(birth, first));
}

#[test]
fn the_lane_that_was_asked_for_the_longest_time_ago_is_handed_on() {
    let mut frontier = Frontier::new(A);
    let streams = || (10..10 + LANES as u64 - 1).map(StreamId::new);
    streams().for_each(|stream| drop(frontier.mark(stream)));
    let (first, second) = (StreamId::new(10), StreamId::new(11));
    frontier.on(first);
    let mark = frontier.mark(first);
    frontier.wait(A, &mark);
    frontier.mark(B);
    assert!(frontier.by_stream.contains_key(&first) && !frontier.by_stream.contains_key(&second));
    assert_eq!(frontier.by_stream.len(), LANES);
}

#[test]
fn what_used_a_lane_before_is_behind_a_stream_that_is_behind_the_main_lane() {
    let mut frontier = Frontier::new(A);
    frontier.turn_to(B);
    let birth = frontier.here();
    frontier.turn_to(A);
    let early = frontier.mark(A);
    let lane = frontier.by_stream[&B];
    for stream in (10..10 + LANES as u64).map(StreamId::new) {
        frontier.mark(stream);
    }
    assert_ne!(frontier.stream(lane), Some(B));
    // The stream that has the lane now is not behind what was done there before.
    let heir = frontier.stream(lane).unwrap();
    assert!(frontier.is_before_main(birth) && !frontier.is_before_stream(birth, heir));
    let mark = frontier.mark(heir);
    frontier.wait(C, &mark);
    frontier.wait(C, &early);
    assert!(!frontier.is_before_stream(birth, C));
    let late = frontier.mark(A);
    frontier.wait(C, &late);
    assert!(frontier.is_before_stream(birth, C));
}

#[test]
fn a_stream_that_knows_of_what_the_main_lane_does_not_keeps_its_lane() {
    let mut frontier = Frontier::new(A);
    let used = frontier.on(B);
    let mark = frontier.mark(B);
    frontier.wait(C, &mark);
    for stream in (10..10 + LANES as u64).map(StreamId::new) {
        frontier.mark(stream);
    }
    let mark = frontier.mark(C);
    frontier.wait(A, &mark);
    assert!(frontier.is_before_main(used));
}

#[test]
fn a_mark_of_another_pool_orders_nothing() {
    let (mut frontier, mut other) = (Frontier::new(A), Frontier::new(A));
    let used = frontier.on(B);
    other.on(B);
    let mark = other.mark(B);
    frontier.wait(A, &mark);
    assert!(!frontier.is_before_main(used));
}

#[test]
fn waiting_on_the_host_reaches_every_stream_and_nothing_later() {
    let mut frontier = Frontier::new(A);
    let used = frontier.on(B);
    frontier.all_reached();
    assert!(frontier.is_before_main(used));
    let later = frontier.on(B);
    assert!(!frontier.is_before_main(later));
}
