//! What a running kernel sees: its dimensions, its arguments, and typed views of the memory behind its pointers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use graphgrove_device::{ArgKind, Args, DevicePtr, LaunchDims};

use crate::access::{Accessor, Direction};
use crate::element::Element;
use crate::finding::{Finding, Target};

/// Why a kernel broke. It poisons the device, as a fault on CUDA does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFault(String);

impl KernelFault {
    /// A fault with a cause in words, for a kernel that finds its arguments impossible (as a device-side assertion).
    pub fn new(cause: impl Into<String>) -> Self {
        Self(cause.into())
    }

    /// The cause in words.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KernelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KernelFault {}

/// What a running kernel sees.
///
/// A kernel's closure runs once a launch, not once a thread: it looks at [`dims`](KernelScope::dims) if it cares, and loops
/// itself. Memory is reached through [`View`]s of the pointer arguments; each view is one access for the checker, over
/// its whole length.
#[derive(Debug)]
pub struct KernelScope<'a> {
    dims: LaunchDims,
    args: &'a Args,
    accessor: RefCell<Accessor<'a>>,
    misuse: Cell<Option<Misuse>>,
    /// An argument that was read through a view made to write.
    unwritten_read: Cell<Option<u32>>,
}

#[derive(Debug, Clone, Copy)]
struct Misuse {
    argument: u32,
    index: usize,
    length: usize,
    address: DevicePtr,
    bytes: u64,
}

impl<'a> KernelScope<'a> {
    pub(crate) fn new(dims: LaunchDims, args: &'a Args, accessor: Accessor<'a>) -> Self {
        Self {
            dims,
            args,
            accessor: RefCell::new(accessor),
            misuse: Cell::new(None),
            unwritten_read: Cell::new(None),
        }
    }

    /// The dimensions of the launch.
    pub fn dims(&self) -> LaunchDims {
        self.dims
    }

    /// The number in an argument.
    ///
    /// # Errors
    /// A fault if there is no such argument.
    pub fn scalar<T: Element>(&self, argument: usize) -> Result<T, KernelFault> {
        self.args
            .word(argument)
            .map(T::from_word)
            .ok_or_else(|| KernelFault::new(format!("there is no argument {argument}")))
    }

    /// A view of `length` elements behind a pointer argument, to read.
    ///
    /// # Errors
    /// A fault if the argument is not a pointer, or the memory is not there.
    pub fn read<T: Element>(&self, argument: usize, length: usize) -> Result<View<'_, T>, KernelFault> {
        self.view(argument, 0, length, &[Direction::Read])
    }

    /// A view of `length` elements behind a pointer argument, to write. All of them count as written. A kernel that reads back
    /// what it has written asks for a view to [read and write](KernelScope::read_write); a read through this one is a
    /// [finding](crate::Finding::Undeclared).
    ///
    /// # Errors
    /// As [`read`](KernelScope::read).
    pub fn write<T: Element>(&self, argument: usize, length: usize) -> Result<View<'_, T>, KernelFault> {
        self.view(argument, 0, length, &[Direction::Write])
    }

    /// A view of `length` elements behind a pointer argument, to read and write.
    ///
    /// # Errors
    /// As [`read`](KernelScope::read).
    pub fn read_write<T: Element>(&self, argument: usize, length: usize) -> Result<View<'_, T>, KernelFault> {
        self.view(argument, 0, length, &[Direction::Read, Direction::Write])
    }

    /// As [`read`](KernelScope::read), from element `first` on.
    ///
    /// # Errors
    /// As [`read`](KernelScope::read).
    pub fn read_at<T: Element>(
        &self,
        argument: usize,
        first: usize,
        length: usize,
    ) -> Result<View<'_, T>, KernelFault> {
        self.view(argument, first, length, &[Direction::Read])
    }

    /// As [`write`](KernelScope::write), from element `first` on.
    ///
    /// # Errors
    /// As [`read`](KernelScope::read).
    pub fn write_at<T: Element>(
        &self,
        argument: usize,
        first: usize,
        length: usize,
    ) -> Result<View<'_, T>, KernelFault> {
        self.view(argument, first, length, &[Direction::Write])
    }

    /// Demands that a pointer argument is a multiple of `alignment` bytes, as a kernel with vector accesses does.
    ///
    /// # Errors
    /// A fault, and a finding, if it is not.
    pub fn require_alignment(&self, argument: usize, alignment: u64) -> Result<(), KernelFault> {
        let address = self.pointer(argument)?;
        if alignment == 0 || address.is_aligned_to(alignment) {
            return Ok(());
        }
        Err(self.misaligned(argument, address, 0, alignment))
    }

    /// What the kernel did with its views that it must not, checked when it has returned.
    pub(crate) fn misuse(self) -> Option<KernelFault> {
        let accessor = self.accessor.into_inner();
        if let Some(argument) = self.unwritten_read.get() {
            let address = self.args.pointer(argument as usize).unwrap_or_default();
            let target = Target { address, bytes: 0, allocation: None, label: None };
            let access = accessor.site(Some(argument));
            accessor.log.add(Finding::Undeclared { access, target, write: false });
        }
        let Misuse { argument, index, length, address, bytes } = self.misuse.get()?;
        let allocation = accessor.space.find(address, 1).ok().map(|(allocation, _)| allocation.target());
        let target = Target { address, bytes, allocation, label: None };
        accessor.log.add(Finding::OutOfBounds { access: accessor.site(Some(argument)), target });
        Some(KernelFault::new(format!(
            "{}: element {index} of a view of {length} elements (argument {argument})",
            accessor.name
        )))
    }

    fn pointer(&self, argument: usize) -> Result<DevicePtr, KernelFault> {
        self.args
            .pointer(argument)
            .ok_or_else(|| KernelFault::new(format!("argument {argument} is not a pointer")))
    }

    fn misaligned(&self, argument: usize, address: DevicePtr, bytes: u64, alignment: u64) -> KernelFault {
        let mut accessor = self.accessor.borrow_mut();
        let allocation = accessor.space.find(address, 1).ok().map(|(allocation, _)| allocation.target());
        let finding = Finding::Misaligned {
            access: accessor.site(Some(argument as u32)),
            target: Target { address, bytes, allocation, label: None },
            alignment,
        };
        let fault = KernelFault::new(finding.to_string());
        accessor.log.add(finding);
        fault
    }

    fn view<T: Element>(
        &self,
        argument: usize,
        first: usize,
        length: usize,
        directions: &[Direction],
    ) -> Result<View<'_, T>, KernelFault> {
        let base = self.pointer(argument)?;
        let size = size_of::<T>() as u64;
        let too_far =
            || KernelFault::new(format!("argument {argument}: element {first} is past all addresses"));
        let bytes = (length as u64).checked_mul(size).ok_or_else(too_far)?;
        let skip = (first as u64).checked_mul(size).ok_or_else(too_far)?;
        let address =
            base.checked_add(skip).filter(|at| at.checked_add(bytes).is_some()).ok_or_else(too_far)?;
        if !address.is_aligned_to(align_of::<T>() as u64) {
            return Err(self.misaligned(argument, address, bytes, align_of::<T>() as u64));
        }
        let mut start = NonNull::dangling();
        let mut accessor = self.accessor.borrow_mut();
        for &direction in directions {
            self.check_declared(&mut accessor, argument, address, bytes, direction);
            if bytes > 0 {
                start = accessor.reach(Some(argument as u32), address, bytes, direction)?.cast();
            }
        }
        Ok(View {
            start,
            address,
            length,
            readable: directions.contains(&Direction::Read),
            writable: directions.contains(&Direction::Write),
            argument: argument as u32,
            misuse: &self.misuse,
            unwritten_read: &self.unwritten_read,
            memory: PhantomData,
        })
    }

    fn check_declared(
        &self,
        accessor: &mut Accessor<'_>,
        argument: usize,
        address: DevicePtr,
        bytes: u64,
        direction: Direction,
    ) {
        let Some(ArgKind::Pointer(declared)) = self.args.fields().get(argument).map(|field| field.kind)
        else {
            return;
        };
        let write = direction == Direction::Write;
        let allowed = if write { declared.writes() } else { declared.reads() };
        if !allowed {
            let target = Target { address, bytes, allocation: None, label: None };
            let access = accessor.site(Some(argument as u32));
            accessor.log.add(Finding::Undeclared { access, target, write });
        }
    }
}

/// Elements of simulated memory behind a pointer argument.
///
/// Two views may share memory, as two pointers of a kernel may; elements are copied in and out one by one, or in bulk.
/// An index past the end reads a zero or writes nothing, and makes the kernel a fault when it returns.
#[derive(Debug)]
pub struct View<'s, T> {
    start: NonNull<T>,
    address: DevicePtr,
    length: usize,
    readable: bool,
    writable: bool,
    argument: u32,
    misuse: &'s Cell<Option<Misuse>>,
    unwritten_read: &'s Cell<Option<u32>>,
    memory: PhantomData<&'s Cell<T>>,
}

impl<T: Element> View<'_, T> {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// One element.
    #[must_use]
    pub fn get(&self, index: usize) -> T {
        if index >= self.length {
            self.blame(index);
            return T::default();
        }
        self.note_read();
        // SAFETY: the view was made over `length` elements of one live allocation, aligned for `T`, whose bytes are
        // initialised and any of which make a `T`; the scope that the view borrows keeps the allocation in place.
        unsafe { self.start.add(index).read() }
    }

    /// Sets one element. A view that was made to read ignores it and makes the kernel a fault.
    pub fn set(&self, index: usize, value: T) {
        if index >= self.length || !self.writable {
            self.blame(index);
            return;
        }
        // SAFETY: as in `get`; no reference to the memory exists, since elements only leave it as copies.
        unsafe { self.start.add(index).write(value) };
    }

    /// All elements, copied out.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.note_read();
        let mut values = vec![T::default(); self.length];
        // SAFETY: as in `get`; the new vector is as long as the view and apart from it.
        unsafe { self.start.as_ptr().copy_to_nonoverlapping(values.as_mut_ptr(), self.length) };
        values
    }

    /// Sets all elements. Nothing is written, and the kernel becomes a fault, unless there are as many values as elements.
    pub fn copy_from(&self, values: &[T]) {
        if values.len() != self.length || !self.writable {
            self.blame(values.len());
            return;
        }
        // SAFETY: as in `set`; `values` is host memory, apart from the view.
        unsafe { self.start.as_ptr().copy_from_nonoverlapping(values.as_ptr(), self.length) };
    }

    fn note_read(&self) {
        if !self.readable {
            self.unwritten_read.set(Some(self.argument));
        }
    }

    fn blame(&self, index: usize) {
        if self.misuse.get().is_none() {
            let bytes = size_of::<T>() as u64;
            let address =
                DevicePtr::new(self.address.get().saturating_add((index as u64).saturating_mul(bytes)));
            let (argument, length) = (self.argument, self.length);
            self.misuse.set(Some(Misuse { argument, index, length, address, bytes }));
        }
    }
}
