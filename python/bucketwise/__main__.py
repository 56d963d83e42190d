"""python -m bucketwise: the program."""

from bucketwise._program import main

main()
