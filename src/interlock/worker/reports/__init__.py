"""Reports of a worker: figures, announcements, stacks, recordings and audits."""
