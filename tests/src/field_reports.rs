//! Scenes from reports of real programs, on any device. The number in each name is the report's in this project's list.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use graphgrove::{Layout, Storage, Tensor, args};
use graphgrove_device::{Args, CaptureStatus, HostMemory, LaunchDims, Progress, SegmentMemory};
use parking_lot::Mutex;

use crate::body::Machine;
use crate::ground::Ground;
use crate::scene::{N, Scene, mix_of};

/// pytorch/pytorch#123177: threads call the same functions, while one records new ones and others allocate.
///
/// # Panics
/// If anything is not as it should be.
pub fn r46_many_threads_call_while_one_records<D: Ground>(device: &Arc<D>) {
    let scene = Scene::new(device);
    let functions: Vec<_> = ["f0", "f1", "f2", "f3"].map(|name| scene.mix(name)).into();
    let finished = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..32_u32 {
            let (scene, functions, finished) = (&scene, &functions, &finished);
            scope.spawn(move || {
                let (a, b) = (scene.tensor(thread), scene.tensor(7));
                for call in 0..25_u32 {
                    // An output of an older step may be gone when this thread looks at it, since every step is everybody's; so it is
                    // the next call, which is given the output, that looks.
                    let function = &functions[(thread + call) as usize % 4];
                    drop(function.call(args![&a, &b]).unwrap());
                }
                finished.fetch_add(1, Ordering::Relaxed);
            });
        }
        let (scene, finished) = (&scene, &finished);
        scope.spawn(move || {
            while finished.load(Ordering::Relaxed) < 32 {
                let segment = scene.device.allocate(4096).unwrap();
                scene.device.write(segment.base(), &[1; 4096]).unwrap();
            }
        });
        let (a, b) = (scene.tensor(3), scene.tensor(4));
        for _ in 0..8 {
            let fresh = scene.mix("fresh");
            for _ in 0..3 {
                drop(fresh.call(args![&a, &b]).unwrap());
            }
        }
    });
    for function in &functions {
        let (a, b) = (scene.tensor(5), scene.tensor(6));
        assert_eq!(scene.value(&scene.one(function, &a, &b)), mix_of(5, 6));
    }
    assert_eq!(scene.stats().calls.failures, 0);
    device.check();
}

/// pytorch/pytorch#104487: a watchdog polls an event while another thread records.
///
/// # Panics
/// If anything is not as it should be.
pub fn r47_a_watchdog_polls_while_the_engine_records<D: Ground>(device: &Arc<D>) {
    let scene = Scene::new(device);
    let event = device.create_event().unwrap();
    device.record_event(&event, scene.engine.stream()).unwrap();
    // A poll is told when somebody asks for it, so the second one that a function is told of was made while the function ran.
    let (tell, told) = mpsc::sync_channel(0);
    let told = Arc::new(Mutex::new(Some(told)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let tell = tell;
            loop {
                let progress = device.query_event(&event).unwrap();
                assert!(matches!(progress, Progress::Done | Progress::Pending));
                if tell.send(()).is_err() {
                    break; // Nobody asks any more.
                }
            }
        });
        let (a, b) = (scene.tensor(1), scene.tensor(2));
        for _ in 0..16 {
            let told = Arc::clone(&told);
            let f = scene.function("f", move |running| {
                let (a, b) = (running.context.take(0)?, running.context.take(1)?);
                let mut out = running.mix(&a, &b, 1)?;
                for _ in 0..2 {
                    told.lock().as_ref().unwrap().recv().unwrap();
                    out = running.mix(&out, &b, 0)?;
                }
                Ok(vec![out])
            });
            for _ in 0..3 {
                drop(f.call(args![&a, &b]).unwrap());
            }
        }
        drop(told.lock().take());
    });
    let calls = scene.stats().calls;
    assert_eq!((calls.recordings, calls.failures, calls.eager), (16, 0, 0), "{calls:?}");
    device.check();
}

/// pytorch/pytorch#161037, NVIDIA/TransformerEngine#2092: everything that can be dropped is dropped during a recording.
///
/// # Panics
/// If anything is not as it should be.
pub fn r48_handles_die_while_a_function_is_recorded<D: Ground>(device: &Arc<D>) {
    let (scene, other) = (Scene::new(device), Scene::new(device));
    let (a, b) = (scene.tensor(1), scene.tensor(2));
    let (g, theirs) = (scene.mix("g"), other.mix("theirs"));
    let mut outputs: Vec<Tensor> = (0..3).map(|_| scene.one(&g, &a, &b)).collect();
    scene.engine.begin_step().unwrap();
    let (c, d) = (other.tensor(3), other.tensor(4));
    outputs.extend((0..4).map(|_| other.one(&theirs, &c, &d)));
    outputs.extend([c, d]);
    let own = device.allocate(4096).unwrap();
    let waiting = Arc::new(Mutex::new(Some((outputs, theirs, own, device.create_event().unwrap()))));
    let (doomed, turn) = (Arc::clone(&waiting), Arc::new(AtomicU32::new(0)));
    let f = scene.function("f", move |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        let first = running.mix(&a, &b, 1)?;
        // The second run is the one that is recorded.
        if turn.fetch_add(1, Ordering::Relaxed) == 1 {
            drop(doomed.lock().take());
        }
        Ok(vec![running.mix(&first, &b, 1)?])
    });
    for _ in 0..4 {
        let out = scene.one(&f, &a, &b);
        assert_eq!(scene.value(&out), mix_of(mix_of(1, 2), 2));
    }
    assert!(waiting.lock().is_none(), "they died in the recording");
    let calls = scene.stats().calls;
    assert_eq!((calls.failures, calls.eager), (0, 0), "{calls:?}");
    assert!(calls.replays >= 2, "{calls:?}");
    device.check();
}

/// NVIDIA/cuopt#1253, NVIDIA/warp#1959: an operation in the middle of a recording fails.
///
/// # Panics
/// If anything is not as it should be.
pub fn r49_a_recording_that_fails_leaves_a_right_result_and_a_usable_engine<D: Ground>(device: &Arc<D>) {
    let scene = Scene::new(device);
    let is_broken = Arc::new(AtomicBool::new(true));
    let (breaks, waiting) = (Arc::clone(&is_broken), Arc::clone(device));
    let f = scene.function("f", move |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        let first = running.mix(&a, &b, 1)?;
        if breaks.load(Ordering::Relaxed) {
            // A capture forbids it, and a plain run does not.
            waiting.synchronize()?;
        }
        Ok(vec![running.mix(&first, &b, 1)?])
    });
    let b = scene.tensor(2);
    for turn in 0..6 {
        is_broken.store(turn < 3, Ordering::Relaxed);
        let a = scene.tensor(turn);
        let out = scene.one(&f, &a, &b);
        assert_eq!(scene.value(&out), mix_of(mix_of(turn, 2), 2), "{turn}");
        let status = device.capture_status(scene.engine.stream()).unwrap();
        assert_eq!(status, CaptureStatus::None, "{turn}");
    }
    let calls = scene.stats().calls;
    assert_eq!((calls.failures, calls.recordings), (2, 1), "{calls:?}");
    assert!(calls.replays > 0, "{calls:?}");
    device.check();
}

/// pytorch/torchtitan#3534: an input is made on another stream just before the call.
///
/// # Panics
/// If anything is not as it should be.
pub fn r56_an_input_made_on_another_stream_is_waited_for<D: Ground>(device: &Arc<D>) {
    let scene = Scene::new(device);
    let producer = device.create_stream().unwrap();
    let f = scene.mix("f");
    let (x, one, b) = (scene.tensor(0), scene.tensor(1), scene.tensor(2));
    let mut expected = 0;
    for turn in 0..5_u32 {
        for k in 0..20 {
            let args = Args::new().read_write(x.address().unwrap()).read(one.address().unwrap());
            let args = args.scalar(N as u32).scalar(1_u32).scalar(N as u32).scalar(1_u32).scalar(k);
            device.launch(&producer, &scene.kernels.accumulate, LaunchDims::ONE, &args).unwrap();
            expected = crate::kernels::accumulated(expected, 1, k);
        }
        let [out] = f.calling().on(&producer).call(args![&x, &b]).unwrap().into_array().unwrap();
        assert_eq!(scene.value(&out), mix_of(expected, 2), "{turn}");
    }
    let calls = scene.stats().calls;
    assert_eq!((calls.recordings, calls.failures, calls.eager), (1, 0, 0), "{calls:?}");
    device.check();
}

/// chelsea0x3b/cudarc#536, tracel-ai/cubecl#1469: a library inside of a function allocates by itself.
///
/// # Panics
/// If anything is not as it should be.
pub fn r60_a_function_whose_library_allocates_runs_plainly_and_leaks_nothing<D: Ground>(device: &Arc<D>) {
    const WORKSPACE: u64 = 8 << 20;
    let scene = Scene::new(device);
    let library = Arc::clone(device);
    let f = scene.function("f", move |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        let out = running.mix(&a, &b, 1)?;
        running.context.foreign(|stream| {
            let workspace = library.allocate_async(stream, WORKSPACE)?;
            library.fill(stream, workspace, 1, WORKSPACE)?;
            library.free_async(stream, workspace)
        })?;
        Ok(vec![out])
    });
    let (a, b) = (scene.tensor(1), scene.tensor(2));
    let mut free = None;
    for turn in 0..40 {
        let out = scene.one(&f, &a, &b);
        assert_eq!(scene.value(&out), mix_of(1, 2), "{turn}");
        if turn >= 5 {
            let now = device.memory_info().unwrap().free;
            assert!(now >= *free.get_or_insert(now), "turn {turn} leaves less memory than those before");
        }
    }
    let calls = scene.stats().calls;
    assert_eq!((calls.recordings, calls.replays), (0, 0), "{calls:?}");
    let reasons = scene.engine.reasons().unwrap();
    assert!(reasons.iter().any(|reason| reason.why.contains("memory")), "{reasons:?}");
    device.check();
}

/// huggingface/candle#3352: a small host buffer that was uploaded in a recording is gone before the replay.
///
/// # Panics
/// If anything is not as it should be.
pub fn r61_host_memory_that_was_uploaded_in_a_recording_is_replayed_after_its_drop<D: Ground>(
    device: &Arc<D>,
) {
    let scene = Scene::new(device);
    let shape = device.host_buffer(4 * N).unwrap();
    shape.write(0, &5_u32.to_le_bytes().repeat(N)).unwrap();
    let held = Arc::new(Mutex::new(Some(shape)));
    let (own, uploads) = (Arc::clone(&held), Arc::clone(device));
    let f = scene.function("f", move |running| {
        let (a, b) = (running.context.take(0)?, running.context.take(1)?);
        let dims = running.context.empty(Layout::of::<u32>(&[N as u64])?)?;
        if let Some(shape) = &*own.lock() {
            let to = dims.address()?;
            running.context.foreign(|stream| uploads.upload(stream, to, shape, 0, 4 * N))?;
        }
        let with_dims = running.mix(&a, &dims, 1)?;
        Ok(vec![running.mix(&with_dims, &b, 1)?])
    });
    let (a, b) = (scene.tensor(1), scene.tensor(2));
    for _ in 0..2 {
        assert_eq!(scene.value(&scene.one(&f, &a, &b)), mix_of(mix_of(1, 5), 2));
    }
    assert_eq!(scene.stats().calls.recordings, 1);
    drop(held.lock().take());
    let others: Vec<_> = (0..64).map(|_| device.host_buffer(4 * N).unwrap()).collect();
    for other in &others {
        other.write(0, &9_u32.to_le_bytes().repeat(N)).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(scene.value(&scene.one(&f, &a, &b)), mix_of(mix_of(1, 5), 2));
    }
    // A second recording, and then memory outside of both.
    let g = scene.mix("g");
    for _ in 0..3 {
        assert_eq!(scene.value(&scene.one(&g, &a, &b)), mix_of(1, 2));
    }
    let segment = device.allocate(4096).unwrap();
    let storage = Storage::outside(segment.base(), 4096, Box::new(segment));
    drop(Tensor::new(storage, Layout::of::<u32>(&[N as u64]).unwrap(), 0).unwrap());
    device.check();
}
