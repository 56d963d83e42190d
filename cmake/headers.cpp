// Nothing but what the libraries share: compiled for its precompiled header (bucketwise_compile).
