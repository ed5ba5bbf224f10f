"""Questions that one command answers: each study is a package of its own, and goes with it."""
