"""Every file that chita reads or writes: checkpoints, packed files and run folders."""
