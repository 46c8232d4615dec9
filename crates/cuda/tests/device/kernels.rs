//! Making kernels.

use graphgrove_cuda::{CudaDevice, CudaError};
use graphgrove_device::{Args, DeviceError, LaunchDims, Memory, Problem, SegmentMemory, Streams, Work};

use crate::support::{PTX, kernel};

pub(crate) fn arguments_that_a_kernel_does_not_take_are_refused(device: &CudaDevice) {
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(4).unwrap();
    let add = kernel(device, "add").unwrap();
    let launch = |args: &Args| device.launch(&stream, &add, LaunchDims::ONE, args).unwrap_err();
    let few = launch(&Args::new().read_write(memory.base()).scalar(1_u32));
    assert!(matches!(
        few,
        DeviceError::Invalid { problem: Problem::ArgumentCount { expected: 3, given: 2 }, .. }
    ));
    let wide = launch(&Args::new().read_write(memory.base()).scalar(1_u32).scalar(1_u64));
    assert!(matches!(wide, DeviceError::Invalid { problem: Problem::ArgumentLayout, .. }));
}

pub(crate) fn code_that_is_no_ptx_is_refused_with_the_drivers_words(device: &CudaDevice) {
    // SAFETY: nothing of it can be launched.
    let error =
        unsafe { device.load(".version 7.0\n.target sm_52\n.address_size 64\nwhat is this") }.unwrap_err();
    let CudaError::Code { log } = error else { panic!("{error}") };
    assert!(log.contains("ptxas") || log.contains("PTX"), "{log}");
    device.synchronize().unwrap();
}

pub(crate) fn a_kernel_that_the_code_lacks_is_not_found(device: &CudaDevice) {
    // SAFETY: nothing of it is launched.
    let module = unsafe { device.load(PTX) }.unwrap();
    let error = module.kernel("nothing").unwrap_err();
    assert_eq!(error, CudaError::NoSuchKernel { name: "nothing".into() });
}

pub(crate) fn source_is_compiled_and_run(device: &CudaDevice) {
    let source = r#"
        struct Pair { float a, b; };
        extern "C" __global__ void affine(float* at, unsigned n, Pair by) {
            unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) at[i] = at[i] * by.a + by.b;
        }"#;
    let ptx = match device.compile(source, &[]) {
        Ok(ptx) => ptx,
        Err(CudaError::NoCompiler { reason }) => {
            println!("         not compiled: {reason}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    // SAFETY: the kernel touches `n` elements behind its pointer.
    let affine = unsafe { device.load(&ptx) }.unwrap().kernel("affine").unwrap();
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(4000).unwrap();
    device.write(memory.base(), &2.0_f32.to_le_bytes().repeat(1000)).unwrap();
    let pair: Vec<u8> = [3.0_f32, 0.5].iter().flat_map(|number| number.to_le_bytes()).collect();
    let args = Args::new().read_write(memory.base()).scalar(1000_u32).blob(&pair);
    device.launch(&stream, &affine, LaunchDims::for_elements(1000), &args).unwrap();
    device.synchronize_stream(&stream).unwrap();
    let mut seen = [0; 4000];
    device.read(memory.base(), &mut seen).unwrap();
    assert_eq!(seen.to_vec(), 6.5_f32.to_le_bytes().repeat(1000));
}

pub(crate) fn source_with_a_mistake_is_refused_with_the_compilers_words(device: &CudaDevice) {
    match device.compile("extern \"C\" __global__ void broken() { nothing }", &[]) {
        Err(CudaError::Compile { log }) => assert!(log.contains("nothing"), "{log}"),
        Err(CudaError::NoCompiler { reason }) => println!("         not compiled: {reason}"),
        other => panic!("{other:?}"),
    }
}
