// A library that is called NCCL and has a single function of it.
extern "C" int ncclGetVersion(int* version);

extern "C" int ncclGetVersion(int* version) {
    *version = 20000;
    return 0;
}
