use super::*;
use crate::testing::Hole;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("a layout")
}

#[test]
fn no_large_block_is_where_memory_was_registered() {
    let hole = Hole::of(4 * LARGE);
    // SAFETY: freed with the layouts that they were made with.
    unsafe {
        // Blocks that find room elsewhere stay.
        let chosen =
            (0..1000).map(|_| System.alloc(layout(3 * LARGE))).find(|block| hole.has(block.addr(), 1));
        System.dealloc(chosen.expect("the C library finds no room in the hole"), layout(3 * LARGE));
        for size in [3 * LARGE, 2 * LARGE + 1, LARGE] {
            let (block, zeroed) = (Heap.alloc(layout(size)), Heap.alloc_zeroed(layout(size)));
            assert!(!block.is_null() && !hole.has(block.addr(), size));
            assert!(!zeroed.is_null() && !hole.has(zeroed.addr(), size));
            Heap.dealloc(block, layout(size));
            Heap.dealloc(zeroed, layout(size));
        }
    }
}

#[test]
fn blocks_keep_their_bytes_when_they_grow_and_shrink() {
    let sizes = [100, LARGE - 1, LARGE, 2 * LARGE + 1, LARGE + 5, LARGE - 1, 10];
    // SAFETY: reallocated and freed with the layout of the last call; within the smaller of the two sizes.
    unsafe {
        let mut block = Heap.alloc(layout(sizes[0]));
        for (before, after) in sizes.iter().copied().zip(sizes[1..].iter().copied()) {
            let common = before.min(after);
            (0..common).for_each(|at| block.add(at).write(at as u8));
            block = Heap.realloc(block, layout(before), after);
            assert!((0..common).all(|at| block.add(at).read() == at as u8), "{before} to {after} bytes");
        }
        Heap.dealloc(block, layout(sizes[sizes.len() - 1]));
    }
}
