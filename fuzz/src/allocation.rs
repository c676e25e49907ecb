//! A limit on single allocations: a length that was trusted before it was checked ends the run, whether or not the memory
//! is ever touched. (libFuzzer itself limits what is resident.)

use std::alloc::{GlobalAlloc, Layout, System};

/// Inputs are a few KiB, and files of the log 64 KiB. The largest honest allocation is the MiB of zeroes that new files
/// are filled with.
const ALLOCATION_BYTES_MAX: usize = 16 << 20;

struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

fn check(bytes: usize) {
    if bytes > ALLOCATION_BYTES_MAX {
        eprintln!("allocation of {bytes} bytes: a length was not checked against what is there");
        // libFuzzer catches it and keeps the input. An allocator must not unwind.
        std::process::abort();
    }
}

// SAFETY: everything is passed on to the allocator of the system.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        check(bytes);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, bytes) }
    }
}
