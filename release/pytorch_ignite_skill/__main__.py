"""python -m pytorch_ignite_skill"""
import sys

from pytorch_ignite_skill import main

if __name__ == "__main__":
    sys.exit(main())
