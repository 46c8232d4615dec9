//! Driver functions that only some drivers have: they are looked up, never assumed.

use std::ffi::c_char;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};

use crate::raw::Raw;

/// The oldest driver that this crate works with, as `cuDriverGetVersion` counts: CUDA 12.2.
pub(crate) const OLDEST_DRIVER: i32 = 12_020;

/// What an edge carries beside its ends (`CUgraphEdgeData`, from CUDA 12.3 on): its ports and its type, which nothing here
/// looks at.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct EdgeData([u8; 8]);

type CaptureInfoV2 = unsafe extern "C" fn(
    sys::CUstream,
    *mut sys::CUstreamCaptureStatus,
    *mut sys::cuuint64_t,
    *mut sys::CUgraph,
    *mut *const sys::CUgraphNode,
    *mut usize,
) -> CUresult;
type CaptureInfoV3 = unsafe extern "C" fn(
    sys::CUstream,
    *mut sys::CUstreamCaptureStatus,
    *mut sys::cuuint64_t,
    *mut sys::CUgraph,
    *mut *const sys::CUgraphNode,
    *mut *const EdgeData,
    *mut usize,
) -> CUresult;
type EdgesV1 =
    unsafe extern "C" fn(sys::CUgraph, *mut sys::CUgraphNode, *mut sys::CUgraphNode, *mut usize) -> CUresult;
type EdgesV2 = unsafe extern "C" fn(
    sys::CUgraph,
    *mut sys::CUgraphNode,
    *mut sys::CUgraphNode,
    *mut EdgeData,
    *mut usize,
) -> CUresult;
type FunctionName = unsafe extern "C" fn(*mut *const c_char, sys::CUfunction) -> CUresult;
type ParameterInfo = unsafe extern "C" fn(sys::CUfunction, usize, *mut usize, *mut usize) -> CUresult;

/// The functions that not every driver has.
#[derive(Debug)]
pub(crate) struct Symbols {
    info_v2: Option<CaptureInfoV2>,
    info_v3: Option<CaptureInfoV3>,
    edges_v1: Option<EdgesV1>,
    edges_v2: Option<EdgesV2>,
    /// `cuFuncGetName`, from CUDA 12.3 on.
    pub(crate) function_name: Option<FunctionName>,
    /// `cuFuncGetParamInfo`, from CUDA 12.4 on.
    pub(crate) parameter_info: Option<ParameterInfo>,
}

/// What the driver knows of a stream's capture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaptureInfo {
    pub(crate) status: sys::CUstreamCaptureStatus,
    pub(crate) id: u64,
    /// The node that the stream's next work will depend on, if it is a single one.
    pub(crate) last: Option<Raw<sys::CUgraphNode_st>>,
}

/// Whether there is a driver library to load.
pub(crate) fn driver_present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: loading the CUDA driver library runs its initialisers only, which have no preconditions.
    *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() })
}

impl Symbols {
    /// Looks the functions up. The driver library has to be present.
    pub(crate) fn load() -> Self {
        // SAFETY: the caller has found the library present, so this does not panic.
        let library = unsafe { sys::culib() };
        macro_rules! find {
            ($type:ty, $name:literal) => {
                // SAFETY: the type is the function's own, from the header of the version that introduced it.
                unsafe { library.get::<$type>($name) }.ok().map(|symbol| *symbol)
            };
        }
        Self {
            info_v2: find!(CaptureInfoV2, b"cuStreamGetCaptureInfo_v2\0"),
            info_v3: find!(CaptureInfoV3, b"cuStreamGetCaptureInfo_v3\0"),
            edges_v1: find!(EdgesV1, b"cuGraphGetEdges\0"),
            edges_v2: find!(EdgesV2, b"cuGraphGetEdges_v2\0"),
            function_name: find!(FunctionName, b"cuFuncGetName\0"),
            parameter_info: find!(ParameterInfo, b"cuFuncGetParamInfo\0"),
        }
    }

    /// What the driver knows of the stream's capture.
    pub(crate) fn capture_info(&self, stream: sys::CUstream) -> Result<CaptureInfo, CUresult> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut id, no_graph) = (0, std::ptr::null_mut());
        let (mut nodes, mut count): (*const sys::CUgraphNode, usize) = (std::ptr::null(), 0);
        let code = if let Some(info) = self.info_v3 {
            let mut edges = std::ptr::null();
            // SAFETY: the stream is live, and all outputs are places on this stack. The edge data has to be asked for:
            // without it the driver refuses edges that carry any.
            unsafe {
                info(
                    stream,
                    &raw mut status,
                    &raw mut id,
                    no_graph,
                    &raw mut nodes,
                    &raw mut edges,
                    &raw mut count,
                )
            }
        } else if let Some(info) = self.info_v2 {
            // SAFETY: the stream is live, and all outputs are places on this stack.
            unsafe { info(stream, &raw mut status, &raw mut id, no_graph, &raw mut nodes, &raw mut count) }
        } else {
            CUresult::CUDA_ERROR_NOT_FOUND
        };
        if code != CUresult::CUDA_SUCCESS {
            return Err(code);
        }
        let last = (status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1)
            // SAFETY: the driver says that `nodes` points to `count` nodes, valid until the next call on the stream.
            .then(|| Raw(unsafe { *nodes }));
        Ok(CaptureInfo { status, id, last })
    }

    /// The dependencies of a graph, as pairs of nodes.
    pub(crate) fn edges(
        &self,
        graph: sys::CUgraph,
    ) -> Result<Vec<(sys::CUgraphNode, sys::CUgraphNode)>, CUresult> {
        let mut count = 0;
        let null = std::ptr::null_mut();
        self.edges_into(graph, null, null, std::ptr::null_mut(), &mut count)?;
        if count == 0 {
            // The driver takes no arrays without places.
            return Ok(Vec::new());
        }
        let mut from = vec![null.cast(); count];
        let mut to = from.clone();
        let mut data = vec![EdgeData::default(); count];
        self.edges_into(graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)?;
        Ok(from.into_iter().zip(to).take(count).collect())
    }

    fn edges_into(
        &self,
        graph: sys::CUgraph,
        from: *mut sys::CUgraphNode,
        to: *mut sys::CUgraphNode,
        data: *mut EdgeData,
        count: &mut usize,
    ) -> Result<(), CUresult> {
        let code = if let Some(edges) = self.edges_v2 {
            // SAFETY: the graph is live, and the arrays are null or have `count` places.
            unsafe { edges(graph, from, to, data, count) }
        } else if let Some(edges) = self.edges_v1 {
            // SAFETY: the graph is live, and the arrays are null or have `count` places.
            unsafe { edges(graph, from, to, count) }
        } else {
            CUresult::CUDA_ERROR_NOT_FOUND
        };
        if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(code) }
    }
}
